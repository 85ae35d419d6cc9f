//! The whole drawing: every include is laid out by itself and becomes one box of the level around it, with ports on its
//! border where edges enter and leave. Boxes of includes can therefore never cut each other or foreign cards.

use std::collections::{BTreeSet, HashMap};

use super::drawing::{Area, Card, Density, Drawing, GroupBox, Label, Path, Point};
use super::level::{Item, Level, LevelEdge, Metrics};
use super::model::Graph;
use crate::text::width;

/// Narrowest and widest boxed card.
const BOXED: (i32, i32) = (25, 41);
/// Widest compact card.
const COMPACT: i32 = 30;
/// Longest name that decides the common width of cards.
const ORDINARY: i32 = 14;
/// Longest branch name.
const LABEL: i32 = 18;

/// Lays out a graph. Pure: equal graphs, densities and folds give equal drawings.
#[must_use]
pub fn lay_out(graph: &Graph, density: Density, folded: &BTreeSet<usize>) -> Drawing {
    let composer = Composer::new(graph, density, folded);
    let root = composer.level(None);
    let mut drawing = Drawing {
        density,
        width: root.width + 2,
        height: root.height,
        cards: root.cards,
        groups: root.groups,
        paths: root.paths,
        labels: root.labels,
        start: root.start,
    };
    shift(&mut drawing, 1);
    drawing.cards.sort_by_key(|card| (card.area.y, card.area.x));
    drawing
}

fn shift(drawing: &mut Drawing, dx: i32) {
    drawing.cards.iter_mut().for_each(|card| card.area.x += dx);
    drawing.groups.iter_mut().for_each(|group| group.area.x += dx);
    drawing
        .paths
        .iter_mut()
        .flat_map(|path| &mut path.points)
        // The way in starts on the border of a group; the whole drawing has none.
        .for_each(|point| {
            *point = Point {
                x: point.x + dx,
                y: point.y.max(0),
            }
        });
    drawing.labels.iter_mut().for_each(|label| label.at.x += dx);
    drawing.start.iter_mut().for_each(|start| start.x += dx);
}

/// What stands at a place of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Node(usize),
    Group(usize),
    /// Where edges to this node come in through the group's upper border.
    Entry(usize),
    /// Where edges from this node go out through the group's lower border.
    Exit(usize),
}

/// A laid-out level, in its own coordinates.
#[derive(Default)]
struct Inner {
    width: i32,
    height: i32,
    cards: Vec<Card>,
    groups: Vec<GroupBox>,
    paths: Vec<Path>,
    labels: Vec<Label>,
    start: Option<Point>,
    entries: HashMap<usize, i32>,
    exits: HashMap<usize, i32>,
}

struct Composer<'a> {
    graph: &'a Graph,
    density: Density,
    folded: &'a BTreeSet<usize>,
    /// Columns of the longest ordinary name.
    common: i32,
    /// Places of every level in document order, by group (the last is the root).
    places: Vec<Vec<Place>>,
    /// Edges of every level: ends, label, graph edges.
    edges: Vec<Vec<Link>>,
}

/// An edge of a level: its ends, its label, the graph edges it stands for.
type Link = (End, End, String, Vec<usize>);

/// A place and the node whose port is meant.
type End = (Place, usize);

impl<'a> Composer<'a> {
    fn new(graph: &'a Graph, density: Density, folded: &'a BTreeSet<usize>) -> Self {
        let levels = graph.groups.len() + 1;
        let common = graph
            .nodes
            .iter()
            .map(|node| (width(&node.name) as i32).min(ORDINARY))
            .max()
            .unwrap_or(0);
        let mut composer = Self {
            graph,
            density,
            folded,
            common,
            places: vec![Vec::new(); levels],
            edges: vec![Vec::new(); levels],
        };
        composer.collect_places();
        composer.collect_edges();
        composer
    }

    const fn slot(&self, group: Option<usize>) -> usize {
        match group {
            Some(group) => group,
            None => self.graph.groups.len(),
        }
    }

    fn collect_places(&mut self) {
        if let Some(start) = self.graph.start {
            let root = self.slot(None);
            self.places[root].push(Place::Entry(start));
        }
        let mut seen = vec![false; self.graph.groups.len()];
        for node in 0..self.graph.nodes.len() {
            let mut place = Place::Node(node);
            let mut inside = self.graph.nodes[node].group;
            loop {
                let slot = self.slot(inside);
                self.places[slot].push(place);
                let Some(group) = inside else { break };
                if std::mem::replace(&mut seen[group], true) {
                    break;
                }
                place = Place::Group(group);
                inside = self.graph.groups[group].parent;
            }
        }
    }

    /// Cuts every edge of the graph where it crosses the border of a group.
    fn collect_edges(&mut self) {
        let mut known: HashMap<(usize, End, End), usize> = HashMap::new();
        if let Some(start) = self.graph.start {
            let chain: Vec<Option<usize>> = self.chain(start);
            for pair in (0..chain.len()).rev() {
                let inner = if pair == 0 {
                    Place::Node(start)
                } else {
                    Place::Group(chain[pair - 1].unwrap_or_default())
                };
                self.push(
                    (chain[pair], (Place::Entry(start), start), (inner, start)),
                    "",
                    None,
                    &mut known,
                );
            }
        }
        for (index, edge) in self.graph.edges.iter().enumerate() {
            let (from, to) = (self.chain(edge.from), self.chain(edge.to));
            let common = from
                .iter()
                .rev()
                .zip(to.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
            let mut source = Place::Node(edge.from);
            for &group in &from[..from.len() - common] {
                let exit = (Place::Exit(edge.from), edge.from);
                self.push((group, (source, edge.from), exit), "", Some(index), &mut known);
                source = Place::Group(group.unwrap_or_default());
            }
            let mut target = Place::Node(edge.to);
            for &group in &to[..to.len() - common] {
                let entry = (Place::Entry(edge.to), edge.to);
                self.push((group, entry, (target, edge.to)), "", Some(index), &mut known);
                target = Place::Group(group.unwrap_or_default());
            }
            let level = from[from.len() - common];
            self.push(
                (level, (source, edge.from), (target, edge.to)),
                &edge.label,
                Some(index),
                &mut known,
            );
        }
    }

    /// Groups around a node, innermost first, ending with the root.
    fn chain(&self, node: usize) -> Vec<Option<usize>> {
        self.graph.around(node).map(Some).chain([None]).collect()
    }

    fn push(
        &mut self,
        (level, from, to): (Option<usize>, End, End),
        label: &str,
        edge: Option<usize>,
        known: &mut HashMap<(usize, End, End), usize>,
    ) {
        let slot = self.slot(level);
        let whole = |end: End| match end.0 {
            Place::Group(group) if self.folded.contains(&group) => (end.0, usize::MAX),
            _ => end,
        };
        let (from, to) = (whole(from), whole(to));
        for port in [from.0, to.0] {
            if matches!(port, Place::Entry(_) | Place::Exit(_)) && !self.places[slot].contains(&port) {
                self.places[slot].push(port);
            }
        }
        let edges = &mut self.edges[slot];
        let at = *known.entry((slot, from, to)).or_insert_with(|| {
            edges.push((from, to, String::new(), Vec::new()));
            edges.len() - 1
        });
        let (_, _, text, list) = &mut edges[at];
        list.extend(edge);
        if !label.is_empty() && !text.split(", ").any(|part| part == label) {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(label);
        }
    }

    fn metrics(&self) -> Metrics {
        match self.density {
            Density::Boxed => Metrics {
                card_gap: 4,
                line_gap: 3,
                label: LABEL,
            },
            Density::Compact => Metrics {
                card_gap: 3,
                line_gap: 2,
                label: LABEL,
            },
            Density::Dots => Metrics {
                card_gap: 3,
                line_gap: 1,
                label: 0,
            },
        }
    }

    /// Size of a card: one width for all ordinary names, so that columns line up, more for long ones.
    fn card_size(&self, name: &str) -> (i32, i32) {
        let name = width(name) as i32;
        match self.density {
            Density::Boxed => ((self.common.max(name) + 10).clamp(BOXED.0, BOXED.1) | 1, 3),
            Density::Compact => ((self.common.max(name) + 8).min(COMPACT) | 1, 1),
            Density::Dots => (1, 1),
        }
    }

    fn level(&self, group: Option<usize>) -> Inner {
        let slot = self.slot(group);
        let places = &self.places[slot];
        let mut inners: HashMap<usize, Inner> = HashMap::new();
        let mut level = Level {
            items: Vec::new(),
            edges: Vec::new(),
            first: Vec::new(),
            last: Vec::new(),
            metrics: self.metrics(),
        };
        let mut index: HashMap<Place, usize> = HashMap::new();
        for (at, &place) in places.iter().enumerate() {
            index.insert(place, at);
            level.items.push(self.item(group, place, &mut inners));
            match place {
                Place::Entry(_) => level.first.push(at),
                Place::Exit(_) => level.last.push(at),
                _ => {}
            }
        }
        for (from, to, label, edges) in &self.edges[slot] {
            let port = |end: &End, entries: bool| match end.0 {
                Place::Node(_) => level.items[index[&end.0]].w / 2,
                Place::Group(group) => inners.get(&group).map_or(level.items[index[&end.0]].w / 2, |inner| {
                    2 + if entries { &inner.entries } else { &inner.exits }
                        .get(&end.1)
                        .copied()
                        .unwrap_or(0)
                }),
                Place::Entry(_) | Place::Exit(_) => 0,
            };
            level.edges.push(LevelEdge {
                from: index[&from.0],
                to: index[&to.0],
                from_dx: port(from, false),
                to_dx: port(to, true),
                label: label.clone(),
                edges: edges.clone(),
            });
        }
        let placed = level.lay_out();
        let mut out = Inner {
            width: placed.width,
            height: placed.height,
            paths: placed.paths,
            labels: placed.labels,
            ..Inner::default()
        };
        for (at, &place) in places.iter().enumerate() {
            let Item { w, h, .. } = level.items[at];
            let area = Area {
                x: placed.x[at],
                y: placed.y[at],
                w,
                h,
            };
            self.collect(group, place, area, &mut inners, &mut out);
        }
        out
    }

    fn item(&self, level: Option<usize>, place: Place, inners: &mut HashMap<usize, Inner>) -> Item {
        match place {
            Place::Node(node) => {
                let (w, h) = self.card_size(&self.graph.nodes[node].name);
                let side = if self.density == Density::Dots {
                    None
                } else {
                    Some(h / 2)
                };
                Item {
                    w,
                    h,
                    side,
                    arrow: true,
                }
            }
            Place::Group(group) if self.folded.contains(&group) => {
                let (w, h) = self.card_size(&self.graph.groups[group].title);
                Item {
                    w,
                    h,
                    side: None,
                    arrow: true,
                }
            }
            Place::Group(group) => {
                let inner = self.level(Some(group));
                let title = width(&self.graph.groups[group].title) as i32;
                let item = Item {
                    w: (inner.width + 4).max(title.min(40) + 6),
                    h: inner.height + 2,
                    side: None,
                    arrow: false,
                };
                inners.insert(group, inner);
                item
            }
            // The start marker needs a row of its own where a loop comes back to the first node.
            Place::Entry(node) => {
                let looped = self.graph.edges.iter().any(|edge| edge.to == node);
                Item {
                    w: 1,
                    h: i32::from(level.is_none() && looped),
                    side: None,
                    arrow: false,
                }
            }
            Place::Exit(_) => Item {
                w: 1,
                h: 0,
                side: None,
                arrow: false,
            },
        }
    }

    fn collect(
        &self,
        level: Option<usize>,
        place: Place,
        area: Area,
        inners: &mut HashMap<usize, Inner>,
        out: &mut Inner,
    ) {
        match place {
            Place::Node(node) => out.cards.push(Card { node, area }),
            Place::Entry(node) => {
                out.entries.insert(node, area.x);
                if level.is_none() {
                    out.start = Some(Point { x: area.x, y: area.y });
                }
            }
            Place::Exit(node) => {
                out.exits.insert(node, area.x);
            }
            Place::Group(group) => {
                out.groups.push(GroupBox {
                    group,
                    area,
                    folded: self.folded.contains(&group),
                });
                let Some(inner) = inners.remove(&group) else { return };
                let (dx, dy) = (area.x + 2, area.y + 1);
                let moved = |point: Point| Point {
                    x: point.x + dx,
                    y: point.y + dy,
                };
                let area = |area: Area| Area {
                    x: area.x + dx,
                    y: area.y + dy,
                    ..area
                };
                out.cards.extend(inner.cards.into_iter().map(|card| Card {
                    area: area(card.area),
                    ..card
                }));
                out.groups.extend(inner.groups.into_iter().map(|group| GroupBox {
                    area: area(group.area),
                    ..group
                }));
                out.labels.extend(inner.labels.into_iter().map(|label| Label {
                    at: moved(label.at),
                    ..label
                }));
                out.paths.extend(inner.paths.into_iter().map(|path| Path {
                    points: path.points.into_iter().map(moved).collect(),
                    ..path
                }));
            }
        }
    }
}
