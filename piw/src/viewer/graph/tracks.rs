//! One channel — the rows between two ranks — as nets that share it: which row each horizontal line gets.
//!
//! A net is everything that leaves one port downwards, or everything that comes back to one port through the gutter. Nets
//! keep their own rows where they would otherwise touch; lines of different nets only cross or join at their target.

/// The end of a net at the lower rank.
#[derive(Debug, Clone)]
pub struct Bottom {
    /// Column.
    pub x: i32,
    /// Text for this branch; may be empty.
    pub label: String,
    /// Columns by which the end may be moved to either side.
    pub slack: i32,
    /// Edges of the level that end here.
    pub edges: Vec<usize>,
}

/// Lines that leave one port.
#[derive(Debug, Clone, Default)]
pub struct Net {
    /// Column at the upper rank; none for a net that comes from the gutter.
    pub top: Option<i32>,
    /// Columns by which the start may be moved to either side.
    pub slack: i32,
    /// Ends at the lower rank.
    pub bottoms: Vec<Bottom>,
    /// Gutter columns that it reaches on the right, with the label and the edges of that branch.
    pub gutters: Vec<Bottom>,
    /// First row, counted from the channel's top.
    pub row: i32,
}

impl Net {
    fn columns(&self) -> impl Iterator<Item = i32> + '_ {
        self.top
            .into_iter()
            .chain(self.bottoms.iter().map(|end| end.x))
            .chain(self.gutters.iter().map(|end| end.x))
    }

    /// Leftmost and rightmost column of the horizontal line.
    pub fn extent(&self) -> (i32, i32) {
        let low = self.columns().min().unwrap_or(0);
        (low, self.columns().max().unwrap_or(low))
    }

    /// Whether it has a horizontal line.
    pub fn bends(&self) -> bool {
        let (low, high) = self.extent();
        low != high
    }

    /// Rows that it needs: its line, and one below for branch names.
    pub fn rows(&self) -> i32 {
        i32::from(self.bends()) + i32::from(self.bottoms.iter().any(|end| !end.label.is_empty()))
    }

    /// Columns that its rows cover, labels included.
    fn span(&self) -> (i32, i32) {
        let (low, high) = self.extent();
        self.bottoms
            .iter()
            .filter(|end| !end.label.is_empty())
            .fold((low, high), |(low, high), end| {
                let half = end.label.chars().count() as i32 / 2 + 1;
                (low.min(end.x - half), high.max(end.x + half))
            })
    }

    /// Row of the branch names.
    pub fn label_row(&self) -> i32 {
        self.row + i32::from(self.bends())
    }
}

/// Above this many nets their order comes from a simple rule instead of counted crossings.
const COUNTED: usize = 48;

/// Gives every net its rows; returns how many rows the channel needs.
pub fn assign(nets: &mut [Net]) -> i32 {
    let preferred = preference(nets);
    for _ in 0..nets.len().min(64) + 1 {
        match topological(nets, &preferred) {
            Ok(order) => return fill(nets, &order),
            Err((order, stuck)) => {
                if !move_end(nets, stuck) {
                    return fill(nets, &order);
                }
            }
        }
    }
    let order = match topological(nets, &preferred) {
        Ok(order) | Err((order, _)) => order,
    };
    fill(nets, &order)
}

/// Whether `a` has to be above `b`: an end of `b` comes down where `a` starts.
fn must_precede(a: &Net, b: &Net) -> bool {
    a.rows() > 0 && a.top.is_some_and(|top| b.bottoms.iter().any(|end| end.x == top)) && b.bends()
}

/// Crossings of two nets when `a` is above `b`.
fn cost(a: &Net, b: &Net) -> i32 {
    let within = |x: i32, net: &Net| {
        let (low, high) = net.extent();
        i32::from(x > low && x < high)
    };
    a.bottoms.iter().map(|end| within(end.x, b)).sum::<i32>() + b.top.map_or(0, |top| within(top, a))
        // The gutter side: what goes up on the right crosses lines that reach further.
        + b.gutters.iter().filter(|_| b.top.is_none()).map(|end| within(end.x, a)).sum::<i32>()
        + a.gutters.iter().filter(|_| a.top.is_some()).map(|_| 0).sum::<i32>()
}

fn preference(nets: &[Net]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nets.len()).collect();
    if nets.len() > COUNTED {
        order.sort_by_key(|net| {
            let (low, high) = nets[*net].extent();
            match nets[*net].top {
                Some(top) if top == high => (0, top),
                Some(top) if top == low => (1, -top),
                _ => (2, low),
            }
        });
        return order;
    }
    let mut sorted: Vec<usize> = Vec::with_capacity(nets.len());
    for net in order {
        let mut here: i32 = sorted.iter().map(|other| cost(&nets[net], &nets[*other])).sum();
        let mut best = (here, 0);
        for (at, other) in sorted.iter().enumerate() {
            here += cost(&nets[*other], &nets[net]) - cost(&nets[net], &nets[*other]);
            if here <= best.0 {
                best = (here, at + 1);
            }
        }
        sorted.insert(best.1, net);
    }
    sorted
}

/// The preferred order made to respect [`must_precede`]; `Err` names a net that had to break it.
fn topological(nets: &[Net], preferred: &[usize]) -> Result<Vec<usize>, (Vec<usize>, usize)> {
    let mut by_top: std::collections::HashMap<i32, Vec<usize>> = std::collections::HashMap::new();
    for (index, net) in nets.iter().enumerate() {
        if let Some(top) = net.top {
            by_top.entry(top).or_default().push(index);
        }
    }
    let before: Vec<Vec<usize>> = nets
        .iter()
        .enumerate()
        .map(|(index, net)| {
            let tops = net
                .bottoms
                .iter()
                .filter_map(|end| by_top.get(&end.x))
                .flatten()
                .copied();
            tops.filter(|other| *other != index && must_precede(&nets[*other], net))
                .collect()
        })
        .collect();
    let mut order = Vec::with_capacity(nets.len());
    let mut done = vec![false; nets.len()];
    let mut stuck = None;
    while order.len() < nets.len() {
        let open = || preferred.iter().copied().filter(|net| !done[*net]);
        let ready = open().find(|net| before[*net].iter().all(|other| done[*other]));
        let Some(next) = ready.or_else(|| open().next()) else {
            break;
        };
        if ready.is_none() && stuck.is_none() {
            stuck = Some(next);
        }
        done[next] = true;
        order.push(next);
    }
    match stuck {
        None => Ok(order),
        Some(net) => Err((order, net)),
    }
}

/// Moves an end of `net` away from the start of another net, or that start away from the end.
fn move_end(nets: &mut [Net], net: usize) -> bool {
    let used: Vec<i32> = nets.iter().flat_map(Net::columns).collect();
    let shifted = |x: i32, slack: i32| {
        let shifts = (2..=slack).flat_map(|shift| [shift, -shift]);
        shifts.map(|shift| x + shift).find(|moved| !used.contains(moved))
    };
    for end in 0..nets[net].bottoms.len() {
        let Bottom { x, slack, .. } = nets[net].bottoms[end];
        let above = (0..nets.len()).find(|other| *other != net && nets[*other].top == Some(x));
        let Some(above) = above.filter(|above| must_precede(&nets[*above], &nets[net])) else {
            continue;
        };
        if let Some(moved) = shifted(x, slack) {
            nets[net].bottoms[end].x = moved;
            nets[net].bottoms[end].slack = 0;
            return true;
        }
        if let Some(moved) = shifted(x, nets[above].slack) {
            nets[above].top = Some(moved);
            nets[above].slack = 0;
            return true;
        }
    }
    false
}

fn fill(nets: &mut [Net], order: &[usize]) -> i32 {
    let mut rows: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut placed: Vec<usize> = Vec::new();
    for &net in order {
        let height = nets[net].rows();
        let (low, high) = nets[net].span();
        let mut row = placed
            .iter()
            .filter(|other| must_precede(&nets[**other], &nets[net]))
            .map(|other| nets[*other].row + nets[*other].rows())
            .max()
            .unwrap_or(0);
        let free = |row: i32| {
            (row..row + height).all(|row| {
                rows.get(row as usize)
                    .is_none_or(|taken| taken.iter().all(|(a, b)| high + 1 < *a || *b + 1 < low))
            })
        };
        while !free(row) {
            row += 1;
        }
        nets[net].row = row;
        for at in row..row + height {
            if rows.len() <= at as usize {
                rows.resize(at as usize + 1, Vec::new());
            }
            rows[at as usize].push((low, high));
        }
        if height > 0 {
            placed.push(net);
        }
    }
    rows.len() as i32
}
