//! What a server that is mistaken or hostile may put into a view: names that no definition may have, and values of any kind. Every
//! cell stays plain, whatever is shown of it.

use super::*;
use crate::text::is_plain;
use crate::viewer::graph::Density;

/// Names with escape sequences, C1 controls, bidi overrides and isolates, zero-width characters and tags, and one without end.
const NODES: [&str; 5] = [
    "in\u{1b}[2Jspect\u{1b}]0;own\u{7}",
    "\u{202e}tset\u{2066}a\u{2069}",
    "zero\u{200b}width\u{200d}\u{feff}\u{e0041}",
    "c1\u{9b}31m\u{9d}0;x\u{9c}",
    "日本e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
];

fn hostile() -> RunView {
    let long = "L".repeat(100_000);
    let nodes = NODES.map(|node| format!("c:{node}")).join(" ") + " c:" + &long;
    let [one, two, three, four, five] = NODES;
    let edges = format!(
        "{one}>{two} {two}>{three}\u{1b}[31m={three},\u{202e}evil={four} {three}>{five} {four}>{five} {five}>{long}"
    );
    let mut definition = fixtures::definition("na\u{1b}[31mme\u{202e}", &nodes, &edges);
    definition.includes = vec![fixtures::include(two, "\u{1b}]0;x\u{7}\u{202e}mounted", two)];
    for node in definition.nodes.values_mut() {
        node.summary = Some("\u{1b}[2J\u{202e}summary".into());
        node.status_detail = Some("\u{1b}[2J\u{202e}detail".into());
    }
    let visits: &'static str = NODES[..4].join(" ").leak();
    let fixture = RunFixture {
        definition,
        visits,
        current: Some(five),
        status: "running",
        controls: &["pause", "cancel", "\u{1b}[31mevil\u{202e}"],
    };
    let mut view = fixture.view();
    let evil = "\u{1b}[31m\u{1b}]52;c;eA==\u{7}\u{9b}5m\u{202e}\u{200b}\u{e0041}EVIL";
    view.state.run_title = Some(evil.into());
    view.display.reason = Some(evil.into());
    view.display.activity = Some(evil.into());
    view.state.status_detail = Some(evil.into());
    view
}

#[test]
fn no_cell_of_any_screen_controls_the_terminal() {
    for size in [(60, 20), (80, 24), (120, 40), (250, 80)] {
        let mut stage = Stage::new(size, None);
        stage.runs(40);
        stage.view(hostile());
        let mut seen = String::new();
        for density in [Density::Boxed, Density::Compact, Density::Dots] {
            stage.press("tab Z z");
            for _ in 0..4 {
                if stage.model.graph.density != density {
                    stage.press("z");
                }
            }
            seen.push_str(&stage.frame());
            stage.press("Z tab tab");
        }
        stage.press("tab tab");
        for keys in [
            "1",
            "2",
            "3",
            "4",
            "5",
            "Z 1",
            "g enter down enter down enter down enter",
            "2",
            "3 enter down enter",
            "5",
            "x",
            "?",
            "esc c",
            "esc :",
            "esc /",
        ] {
            stage.press(keys);
            seen.push_str(&stage.frame());
        }
        let strange: Vec<char> = seen.chars().filter(|c| *c != '\n' && !is_plain(*c)).collect();
        assert_eq!(strange, Vec::<char>::new(), "{size:?}");
        assert!(
            seen.contains("EVIL") && seen.contains("inspect") || seen.contains("in␛"),
            "{size:?}: {seen}"
        );
    }
}
