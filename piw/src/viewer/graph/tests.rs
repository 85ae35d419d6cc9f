//! What the drawing looks like, and that it keeps its promises for any graph.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::drawing::{Area, Density, Drawing, Point};
use super::model::Graph;
use super::paint::{Overlay, Scene, paint};
use crate::viewer::fixtures;
use crate::viewer::theme::Theme;

/// The whole drawing as text.
fn picture(graph: &Graph, drawing: &Drawing, overlay: &Overlay) -> String {
    let area = Rect::new(0, 0, drawing.width as u16, drawing.height as u16);
    let mut buffer = Buffer::empty(area);
    let theme = Theme::plain();
    let scene = Scene {
        graph,
        drawing,
        overlay,
        origin: Point::default(),
        selected: None,
        theme: &theme,
    };
    paint(&scene, area, &mut buffer);
    let mut out = String::new();
    for y in 0..area.height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn plain(words: (&str, &str), density: Density) -> String {
    let graph = Graph::new(&fixtures::definition("test", words.0, words.1));
    let drawing = super::lay_out(&graph, density, &BTreeSet::new());
    picture(&graph, &drawing, &Overlay::idle(&graph))
}

/// A graph of `count` nodes whose edges are given as pairs of numbers; nodes in `inside` belong to an include.
fn numbered(count: usize, pairs: &[(usize, usize)], inside: &[usize]) -> Graph {
    let name = |node: usize| {
        if inside.contains(&node) {
            format!("m/n{node}")
        } else {
            format!("n{node}")
        }
    };
    let nodes: Vec<String> = (0..count).map(|node| format!("c:{}", name(node))).collect();
    let mut out: HashMap<usize, Vec<usize>> = HashMap::new();
    for (from, to) in pairs {
        let targets = out.entry(from % count).or_default();
        if !targets.contains(&(to % count)) {
            targets.push(to % count);
        }
    }
    let edges: Vec<String> = (0..count)
        .filter_map(|from| {
            let targets = out.get(&from)?;
            Some(match targets[..] {
                [only] => format!("{}>{}", name(from), name(only)),
                _ => {
                    let cases: Vec<String> = targets
                        .iter()
                        .enumerate()
                        .map(|(at, to)| format!("case{at}={}", name(*to)))
                        .collect();
                    format!("{}>{}", name(from), cases.join(","))
                }
            })
        })
        .collect();
    let mut definition = fixtures::definition("random", &nodes.join(" "), &edges.join(" "));
    if let Some(first) = inside.first() {
        definition.includes = vec![fixtures::include("m", "mounted", &name(*first))];
    }
    Graph::new(&definition)
}

/// Checks what every drawing promises.
fn check(graph: &Graph, drawing: &Drawing) -> Result<(), TestCaseError> {
    let whole = Area {
        x: 0,
        y: 0,
        w: drawing.width,
        h: drawing.height,
    };
    prop_assert_eq!(drawing.cards.len(), graph.nodes.len());
    for (index, card) in drawing.cards.iter().enumerate() {
        prop_assert!(whole.contains(card.area.x, card.area.y));
        prop_assert!(whole.contains(card.area.x + card.area.w - 1, card.area.y + card.area.h - 1));
        for other in &drawing.cards[index + 1..] {
            prop_assert!(
                !card.area.overlaps(&other.area),
                "cards {} and {} overlap",
                card.node,
                other.node
            );
        }
    }
    let mut drawn = vec![false; graph.edges.len()];
    for path in &drawing.paths {
        for edge in &path.edges {
            drawn[*edge] = true;
        }
        for pair in path.points.windows(2) {
            prop_assert!(
                pair[0].x == pair[1].x || pair[0].y == pair[1].y,
                "a slanted line: {:?}",
                path
            );
        }
        for (at, cell) in cells(&path.points).into_iter().enumerate() {
            prop_assert!(whole.contains(cell.x, cell.y), "{:?} leaves the drawing", path);
            if let Some(card) = drawing.card_at(cell.x, cell.y) {
                let own = path.edges.iter().any(|edge| graph.edges[*edge].from == card.node);
                prop_assert!(at == 0 && own, "a line runs over card {}: {:?}", card.node, path);
            }
        }
    }
    prop_assert!(drawn.iter().all(|drawn| *drawn), "every edge has a line");
    for label in &drawing.labels {
        let area = |at: Point, text: &str| Area {
            x: at.x,
            y: at.y,
            w: text.chars().count() as i32,
            h: 1,
        };
        let here = area(label.at, &label.text);
        for card in &drawing.cards {
            prop_assert!(!here.overlaps(&card.area), "label {} lies on a card", label.text);
        }
    }
    Ok(())
}

fn cells(points: &[Point]) -> Vec<Point> {
    let mut cells = vec![points[0]];
    for pair in points.windows(2) {
        let (dx, dy) = ((pair[1].x - pair[0].x).signum(), (pair[1].y - pair[0].y).signum());
        let mut at = pair[0];
        while at != pair[1] {
            at = Point {
                x: at.x + dx,
                y: at.y + dy,
            };
            cells.push(at);
        }
    }
    cells
}

/// Pairs of lines that lie on each other although they share neither source nor target: a reader could not tell them apart.
fn confusions(graph: &Graph, drawing: &Drawing) -> usize {
    let mut seen: HashMap<(i32, i32, bool), Vec<usize>> = HashMap::new();
    let mut count = 0;
    for (index, path) in drawing.paths.iter().enumerate() {
        for pair in cells(&path.points).windows(2) {
            let step = (
                pair[0].x.min(pair[1].x),
                pair[0].y.min(pair[1].y),
                pair[0].y == pair[1].y,
            );
            let others = seen.entry(step).or_default();
            for other in others.iter() {
                let ends = |path: usize| -> Vec<(usize, usize)> {
                    drawing.paths[path]
                        .edges
                        .iter()
                        .map(|edge| (graph.edges[*edge].from, graph.edges[*edge].to))
                        .collect()
                };
                let (mine, theirs) = (ends(index), ends(*other));
                let related = mine.iter().any(|a| theirs.iter().any(|b| a.0 == b.0 || a.1 == b.1));
                count += usize::from(!related && !mine.is_empty() && !theirs.is_empty());
            }
            others.push(index);
        }
    }
    count
}

fn random_graph() -> impl Strategy<Value = (usize, Vec<(usize, usize)>, Vec<usize>)> {
    (2usize..24).prop_flat_map(|count| {
        let pairs = prop::collection::vec((0..count, 0..count), 1..count * 2);
        let inside = (0..count, 0usize..5).prop_map(move |(from, len)| (from..(from + len).min(count)).collect());
        (Just(count), pairs, inside)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn any_graph_is_drawn_well((count, pairs, inside) in random_graph()) {
        let graph = numbered(count, &pairs, &inside);
        for density in Density::ALL {
            let drawing = super::lay_out(&graph, density, &BTreeSet::new());
            check(&graph, &drawing)?;
            prop_assert_eq!(&drawing, &super::lay_out(&graph, density, &BTreeSet::new()));
        }
    }
}

#[test]
fn lines_are_rarely_confusable() {
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut bad, mut cells) = (0, 0);
    for _ in 0..150 {
        let count = 4 + random(12);
        let pairs: Vec<(usize, usize)> = (0..count * 3 / 2).map(|_| (random(count), random(count))).collect();
        let graph = numbered(count, &pairs, &[]);
        let drawing = super::lay_out(&graph, Density::Boxed, &BTreeSet::new());
        let confused = confusions(&graph, &drawing);
        bad += usize::from(confused > 0);
        cells += confused;
    }
    assert!(bad == 0, "{bad} of 150 graphs have {cells} confusable pieces");
}

#[test]
fn a_branch_a_loop_and_a_join() {
    let words = (
        "s:look c:decide f:repair s:test n:done c:stop",
        "look>decide decide>clean=test,dirty=repair,odd=stop repair>test test>again=look,ok=done",
    );
    insta::assert_snapshot!("branch_loop_join_boxed", plain(words, Density::Boxed));
    insta::assert_snapshot!("branch_loop_join_compact", plain(words, Density::Compact));
    insta::assert_snapshot!("branch_loop_join_dots", plain(words, Density::Dots));
}

#[test]
fn two_checks_that_both_lead_to_both_ends() {
    let words = (
        "c:start s:left s:right n:good n:bad",
        "start>l=left,r=right left>ok=good,no=bad right>ok=good,no=bad",
    );
    insta::assert_snapshot!("crossing_pairs", plain(words, Density::Boxed));
}

#[test]
fn loops_of_every_kind() {
    let words = (
        "c:first c:wait c:nested c:last",
        "first>wait wait>again=wait,go=nested nested>outer=first,inner=wait,out=last",
    );
    insta::assert_snapshot!("loops", plain(words, Density::Compact));
}

#[test]
fn many_ways_to_one_node() {
    let words = (
        "c:a c:b c:c c:d c:e n:fail n:done",
        "a>ok=b,bad=fail b>ok=c,bad=fail c>ok=d,bad=fail d>ok=e,bad=fail e>ok=done,bad=fail",
    );
    insta::assert_snapshot!("trunk", plain(words, Density::Compact));
}

#[test]
fn includes_are_boxes() {
    let graph = Graph::new(&fixtures::composed());
    let drawing = super::lay_out(&graph, Density::Boxed, &BTreeSet::new());
    insta::assert_snapshot!("includes", picture(&graph, &drawing, &Overlay::idle(&graph)));
    for (index, group) in drawing.groups.iter().enumerate() {
        for card in &drawing.cards {
            let member = graph.around(card.node).any(|around| around == group.group);
            assert_eq!(
                member,
                group.area.overlaps(&card.area),
                "group {index} and node {}",
                card.node
            );
        }
    }
}
