//! Rows, lines and labels: turns placed columns into a drawing. Lines leave a box at the bottom, run along a row of the
//! channel below it, and arrive from above; edges that run backwards go up a gutter on the right.

use std::collections::HashMap;

use super::drawing::{Label, Path, Point};
use super::layered::Layered;
use super::level::{Level, Placed};
use super::rank::Ranks;
use super::tracks::{self, Bottom, Net};
use crate::text::fit;

/// A gutter line: all edges back to one port.
struct Gutter {
    to: usize,
    to_dx: i32,
    column: i32,
    /// First and last rank beside it.
    ranks: (usize, usize),
    edges: Vec<usize>,
}

/// How a back edge leaves its source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Side,
    Bottom,
}

struct Router<'a> {
    level: &'a Level,
    ranks: &'a Ranks,
    layered: &'a Layered,
    x: Vec<i32>,
    gutters: Vec<Gutter>,
    /// By edge of the level: gutter and way out, for back edges.
    back: Vec<Option<(usize, Leave)>>,
    /// By edge of the level: net that takes a back edge to the gutter, in the channel below its source.
    back_net: Vec<usize>,
    /// Nets by channel; channel `c` lies above rank `c`.
    nets: Vec<Vec<Net>>,
    /// Net and end of every segment, in the channel above its lower vertex.
    segment_end: Vec<(usize, usize)>,
    /// Net that brings a gutter to its target, in the channel above the target.
    gutter_net: Vec<usize>,
    channel_y: Vec<i32>,
    rank_y: Vec<i32>,
}

/// Lays out rows and lines for given columns.
pub fn route(level: &Level, ranks: &Ranks, layered: &Layered, x: Vec<i32>) -> Placed {
    let mut router = Router {
        level,
        ranks,
        layered,
        x,
        gutters: Vec::new(),
        back: vec![None; level.edges.len()],
        back_net: vec![0; level.edges.len()],
        nets: vec![Vec::new(); ranks.count + 1],
        segment_end: vec![(0, 0); layered.segments.len()],
        gutter_net: Vec::new(),
        channel_y: Vec::new(),
        rank_y: Vec::new(),
    };
    router.place_gutters();
    router.build_nets();
    let height = router.place_rows();
    router.finish(height)
}

impl Router<'_> {
    fn label(&self, edge: usize) -> String {
        match self.level.metrics.label {
            0 => String::new(),
            limit => fit(&self.level.edges[edge].label, limit as usize).into_owned(),
        }
    }

    fn place_gutters(&mut self) {
        let right: Vec<i32> = self
            .layered
            .order
            .iter()
            .map(|rank| {
                rank.iter()
                    .map(|v| self.x[*v] + self.layered.vertices[*v].right)
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut per_source: HashMap<usize, usize> = HashMap::new();
        for (index, edge) in self
            .level
            .edges
            .iter()
            .enumerate()
            .filter(|(index, _)| self.ranks.back[*index])
        {
            *per_source.entry(edge.from).or_default() += 1;
            let gutter = self
                .gutters
                .iter()
                .position(|gutter| gutter.to == edge.to && gutter.to_dx == edge.to_dx);
            let gutter = gutter.unwrap_or_else(|| {
                let rank = self.ranks.of[edge.to];
                self.gutters.push(Gutter {
                    to: edge.to,
                    to_dx: edge.to_dx,
                    column: 0,
                    ranks: (rank, rank),
                    edges: Vec::new(),
                });
                self.gutters.len() - 1
            });
            let ranks = &mut self.gutters[gutter].ranks;
            ranks.0 = ranks.0.min(self.ranks.of[edge.from]);
            ranks.1 = ranks.1.max(self.ranks.of[edge.from]);
            self.gutters[gutter].edges.push(index);
            self.back[index] = Some((gutter, Leave::Bottom));
        }
        for (index, edge) in self.level.edges.iter().enumerate() {
            let last = self.layered.order[self.ranks.of[edge.from]].last() == Some(&edge.from);
            if let Some((_, leave)) = &mut self.back[index]
                && last
                && per_source[&edge.from] == 1
                && self.level.items[edge.from].side.is_some()
            {
                *leave = Leave::Side;
            }
        }
        let mut order: Vec<usize> = (0..self.gutters.len()).collect();
        order.sort_by_key(|gutter| (self.gutters[*gutter].ranks.1 - self.gutters[*gutter].ranks.0, *gutter));
        for (done, &gutter) in order.iter().enumerate() {
            let (first, last) = self.gutters[gutter].ranks;
            let mut column = right[first..=last].iter().copied().max().unwrap_or(0) + 2;
            for &edge in &self.gutters[gutter].edges {
                column = column.max(self.room_for_label(edge));
            }
            for &inner in &order[..done] {
                let inner = &self.gutters[inner];
                if inner.ranks.0 <= last + 1 && first <= inner.ranks.1 + 1 {
                    column = column.max(inner.column + 2 + self.label_between(inner, &self.gutters[gutter]));
                }
            }
            self.gutters[gutter].column = column;
        }
    }

    /// Columns for the label of an edge to `outer` whose source leads to `inner` as well.
    fn label_between(&self, inner: &Gutter, outer: &Gutter) -> i32 {
        let source = |edge: &usize| self.level.edges[*edge].from;
        let shared = outer
            .edges
            .iter()
            .filter(|edge| inner.edges.iter().any(|other| source(other) == source(edge)));
        let labels = shared.map(|edge| self.label(*edge).chars().count() as i32);
        labels.max().map_or(0, |label| if label == 0 { 0 } else { label + 2 })
    }

    /// The least gutter column that leaves room for the edge's label.
    fn room_for_label(&self, index: usize) -> i32 {
        let edge = &self.level.edges[index];
        let label = self.label(index).chars().count() as i32;
        let room = if label == 0 { 2 } else { label + 4 };
        match self.back[index] {
            Some((_, Leave::Side)) => self.x[edge.from] + self.level.items[edge.from].w + room,
            _ => {
                let below = self.layered.down[edge.from].iter().map(|segment| {
                    let segment = &self.layered.segments[*segment];
                    self.x[segment.below] + segment.below_dx
                });
                below.fold(self.x[edge.from] + edge.from_dx, i32::max) + room
            }
        }
    }

    fn build_nets(&mut self) {
        for channel in 0..=self.ranks.count {
            let mut by_port: HashMap<(usize, i32), usize> = HashMap::new();
            if channel > 0 {
                for &vertex in &self.layered.order[channel - 1] {
                    for &segment in &self.layered.down[vertex] {
                        self.add_segment(channel, segment, &mut by_port);
                    }
                }
            }
            for index in 0..self.level.edges.len() {
                if let Some((gutter, Leave::Bottom)) = self.back[index]
                    && self.ranks.of[self.level.edges[index].from] + 1 == channel
                {
                    let edge = &self.level.edges[index];
                    let key = (edge.from, edge.from_dx);
                    let net = self.net(channel, key, &mut by_port);
                    let end = Bottom {
                        x: self.gutters[gutter].column,
                        label: self.label(index),
                        slack: 0,
                        edges: vec![index],
                    };
                    self.nets[channel][net].gutters.push(end);
                    self.back_net[index] = net;
                }
            }
        }
        for gutter in &self.gutters {
            let channel = self.ranks.of[gutter.to];
            let end = |x, slack| Bottom {
                x,
                label: String::new(),
                slack,
                edges: gutter.edges.clone(),
            };
            let slack = self.slack(gutter.to);
            self.gutter_net.push(self.nets[channel].len());
            self.nets[channel].push(Net {
                top: None,
                slack: 0,
                bottoms: vec![end(self.x[gutter.to] + gutter.to_dx, slack)],
                gutters: vec![end(gutter.column, 0)],
                row: 0,
            });
        }
    }

    /// How far a line may stand off the middle of a box.
    fn slack(&self, item: usize) -> i32 {
        let item = &self.level.items[item];
        if item.arrow && item.h > 0 {
            (item.w / 2 - 3).max(0)
        } else {
            0
        }
    }

    fn net(&mut self, channel: usize, key: (usize, i32), by_port: &mut HashMap<(usize, i32), usize>) -> usize {
        let item = self.layered.vertices[key.0].item;
        let slack = item.map_or(0, |item| self.slack(item));
        *by_port.entry(key).or_insert_with(|| {
            self.nets[channel].push(Net {
                top: Some(self.x[key.0] + key.1),
                slack,
                ..Net::default()
            });
            self.nets[channel].len() - 1
        })
    }

    fn add_segment(&mut self, channel: usize, index: usize, by_port: &mut HashMap<(usize, i32), usize>) {
        let layered = self.layered;
        let segment = &layered.segments[index];
        let net = self.net(channel, (segment.above, segment.above_dx), by_port);
        let first = layered.vertices[segment.above].item.is_some();
        let label = segment
            .edges
            .first()
            .filter(|_| first)
            .map_or_else(String::new, |edge| self.label(*edge));
        let slack = layered.vertices[segment.below].item.map_or(0, |item| self.slack(item));
        let x = self.x[segment.below] + segment.below_dx;
        self.nets[channel][net].bottoms.push(Bottom {
            x,
            label,
            slack,
            edges: segment.edges.clone(),
        });
        self.segment_end[index] = (net, self.nets[channel][net].bottoms.len() - 1);
    }

    fn place_rows(&mut self) -> i32 {
        let mut y = 0;
        for channel in 0..=self.ranks.count {
            let mut rows = tracks::assign(&mut self.nets[channel]);
            if channel < self.ranks.count {
                let arrives = |vertex: &usize| {
                    let layered = self.layered;
                    let back = || self.gutters.iter().any(|gutter| gutter.to == *vertex);
                    layered.vertices[*vertex]
                        .item
                        .is_some_and(|item| self.level.items[item].arrow)
                        && (!layered.up[*vertex].is_empty() || back())
                };
                let arrow = self.layered.order[channel].iter().any(arrives);
                rows += i32::from(arrow);
                if channel > 0 {
                    rows = rows.max(1);
                }
            }
            self.channel_y.push(y);
            y += rows;
            if channel < self.ranks.count {
                self.rank_y.push(y);
                let items = self.layered.order[channel]
                    .iter()
                    .filter_map(|vertex| self.layered.vertices[*vertex].item);
                y += items.map(|item| self.level.items[item].h).max().unwrap_or(0);
            }
        }
        y
    }

    fn row(&self, channel: usize, net: usize) -> i32 {
        self.channel_y[channel] + self.nets[channel][net].row
    }

    /// Last points of a line that comes down at `x` to an item.
    fn arrive(&self, to: usize, x: i32) -> Point {
        let y = self.rank_y[self.ranks.of[to]];
        Point {
            x,
            y: if self.level.items[to].arrow { y - 1 } else { y },
        }
    }

    fn forward(&self, index: usize) -> Path {
        let edge = &self.level.edges[index];
        let below = &self.nets[self.ranks.of[edge.from] + 1];
        let first = self.layered.route[index].first();
        let top = first.and_then(|segment| below[self.segment_end[*segment].0].top);
        let start = Point {
            x: top.unwrap_or(self.x[edge.from] + edge.from_dx),
            y: self.rank_y[self.ranks.of[edge.from]] + self.level.items[edge.from].h - 1,
        };
        let mut points = vec![start];
        let mut x = start.x;
        for &segment in &self.layered.route[index] {
            let below = self.layered.segments[segment].below;
            let channel = self.layered.vertices[below].rank;
            let (net, end) = self.segment_end[segment];
            let next = self.nets[channel][net].bottoms[end].x;
            if next != x {
                let y = self.row(channel, net);
                points.extend([Point { x, y }, Point { x: next, y }]);
                x = next;
            }
        }
        points.push(self.arrive(edge.to, x));
        Path {
            points,
            edges: edge.edges.clone(),
            arrow: self.level.items[edge.to].arrow,
        }
    }

    fn backward(&self, index: usize, gutter: usize, leave: Leave) -> Path {
        let edge = &self.level.edges[index];
        let item = &self.level.items[edge.from];
        let rank = self.ranks.of[edge.from];
        let column = self.gutters[gutter].column;
        let mut points = match (leave, item.side) {
            (Leave::Side, Some(side)) => {
                let y = self.rank_y[rank] + side;
                vec![
                    Point {
                        x: self.x[edge.from] + item.w - 1,
                        y,
                    },
                    Point { x: column, y },
                ]
            }
            _ => {
                let net = self.back_net[index];
                let x = self.nets[rank + 1][net].top.unwrap_or(0);
                let y = self.row(rank + 1, net);
                vec![
                    Point {
                        x,
                        y: self.rank_y[rank] + item.h - 1,
                    },
                    Point { x, y },
                    Point { x: column, y },
                ]
            }
        };
        let channel = self.ranks.of[edge.to];
        let net = self.gutter_net[gutter];
        let y = self.row(channel, net);
        let x = self.nets[channel][net].bottoms[0].x;
        points.extend([Point { x: column, y }, Point { x, y }, self.arrive(edge.to, x)]);
        Path {
            points,
            edges: edge.edges.clone(),
            arrow: self.level.items[edge.to].arrow,
        }
    }

    fn finish(self, height: i32) -> Placed {
        let items = self.level.items.len();
        let mut placed = Placed {
            x: self.x[..items].to_vec(),
            y: self.ranks.of.iter().map(|rank| self.rank_y[*rank]).collect(),
            width: 0,
            height,
            paths: Vec::with_capacity(self.level.edges.len()),
            labels: Vec::new(),
        };
        for index in 0..self.level.edges.len() {
            let mut path = match self.back[index] {
                Some((gutter, leave)) => self.backward(index, gutter, leave),
                None => self.forward(index),
            };
            straighten(&mut path.points);
            placed.paths.push(path);
        }
        self.place_labels(&mut placed.labels);
        let boxes = (0..self.layered.vertices.len()).map(|v| self.x[v] + self.layered.vertices[v].right);
        let lines = placed
            .paths
            .iter()
            .flat_map(|path| &path.points)
            .map(|point| point.x + 1);
        let texts = placed
            .labels
            .iter()
            .map(|label| label.at.x + label.text.chars().count() as i32);
        placed.width = boxes.chain(lines).chain(texts).max().unwrap_or(0);
        placed
    }

    fn place_labels(&self, labels: &mut Vec<Label>) {
        for channel in 0..=self.ranks.count {
            for net in 0..self.nets[channel].len() {
                self.label_net(channel, net, labels);
            }
        }
        for (index, edge) in self.level.edges.iter().enumerate() {
            let text = self.label(index);
            if let Some((_, Leave::Side)) = self.back[index]
                && let Some(side) = self.level.items[edge.from].side
                && !text.is_empty()
            {
                let at = Point {
                    x: self.x[edge.from] + self.level.items[edge.from].w + 1,
                    y: self.rank_y[self.ranks.of[edge.from]] + side,
                };
                labels.push(Label {
                    at,
                    text,
                    edges: edge.edges.clone(),
                });
            }
        }
    }

    fn label_net(&self, channel: usize, index: usize, labels: &mut Vec<Label>) {
        let nets = &self.nets[channel];
        let net = &nets[index];
        let top = self.channel_y[channel];
        let graph_edges = |end: &Bottom| -> Vec<usize> {
            end.edges
                .iter()
                .flat_map(|edge| self.level.edges[*edge].edges.iter().copied())
                .collect()
        };
        for end in net.bottoms.iter().filter(|end| !end.label.is_empty()) {
            let length = end.label.chars().count() as i32;
            let row = net.label_row();
            let joined = nets.iter().enumerate().any(|(other, joining)| {
                other != index && joining.bottoms.iter().any(|b| b.x == end.x) && joining.bends() && joining.row < row
            });
            let sideways = joined.then(|| beside(net, end.x, length)).flatten();
            let at = sideways.map_or_else(
                || Point {
                    x: clear_of(nets, index, row, end.x, length),
                    y: top + row,
                },
                |x| Point { x, y: top + net.row },
            );
            labels.push(Label {
                at,
                text: end.label.clone(),
                edges: graph_edges(end),
            });
        }
        let Some(start) = net.top else { return };
        let mut from = net.bottoms.iter().map(|end| end.x).fold(start, i32::max);
        let mut gutters: Vec<&Bottom> = net.gutters.iter().collect();
        gutters.sort_by_key(|end| end.x);
        for end in gutters {
            let room = (end.x - from - 3).max(0) as usize;
            let text = fit(&end.label, room).into_owned();
            if !text.is_empty() {
                labels.push(Label {
                    at: Point {
                        x: from + 2,
                        y: top + net.row,
                    },
                    text,
                    edges: graph_edges(end),
                });
            }
            from = end.x;
        }
    }
}

/// Where a label fits on the horizontal line next to the bend at `x`.
fn beside(net: &Net, x: i32, length: i32) -> Option<i32> {
    let start = net.top?;
    let columns = net.bottoms.iter().map(|end| end.x).chain([start]);
    if x < start {
        let next = columns.filter(|other| *other > x).min()?;
        (next - x > length + 2).then_some(x + 2)
    } else {
        let next = columns.filter(|other| *other < x).max()?;
        (x - next > length + 2).then_some(x - 1 - length)
    }
}

/// First column of a label that covers the line at `x` and hides no line of another net.
fn clear_of(nets: &[Net], index: usize, row: i32, x: i32, length: i32) -> i32 {
    let mut foreign: Vec<i32> = Vec::new();
    for (_, net) in nets.iter().enumerate().filter(|(other, _)| *other != index) {
        let turn = if net.bends() { net.row } else { i32::MAX };
        foreign.extend(net.top.filter(|_| turn >= row));
        if turn <= row {
            foreign.extend(net.bottoms.iter().map(|end| end.x));
        }
    }
    let clear = |start: i32| {
        foreign
            .iter()
            .all(|column| *column < start - 1 || *column > start + length)
    };
    let middle = x - length / 2;
    let nearby = (0..length).flat_map(|shift| [middle - shift, middle + shift]);
    let mut fitting = nearby.filter(|start| *start >= 0 && *start <= x && start + length > x);
    fitting.find(|start| clear(*start)).unwrap_or_else(|| middle.max(0))
}

/// Drops repeated points and points in the middle of a straight line.
fn straighten(points: &mut Vec<Point>) {
    points.dedup();
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for &point in points.iter() {
        if let [.., a, b] = kept[..]
            && ((a.x == b.x && b.x == point.x && (a.y <= b.y) == (b.y <= point.y))
                || (a.y == b.y && b.y == point.y && (a.x <= b.x) == (b.x <= point.x)))
        {
            kept.pop();
        }
        kept.push(point);
    }
    *points = kept;
}
