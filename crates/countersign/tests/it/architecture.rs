//! The map of the code, held to the code: every test, file and item that docs/architecture.md names is there, `enroll`
//! depends on nothing that it must not, and the engine knows no door by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/architecture.md";

#[test]
fn every_test_that_the_architecture_names_exists() {
    let named = tests_named_in(&page());
    // A page that is read wrongly must not pass.
    assert!(named.len() > 30, "{named:?}");
    let mut sources = BTreeMap::new();
    for (name, krate) in &named {
        let functions = sources
            .entry(krate.clone())
            .or_insert_with(|| functions_of(krate));
        let is_there = functions.iter().any(|function| is_like(function, name));
        assert!(is_there, "{PAGE} names {name}: no such test in {krate}");
    }
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let page = page();
    let named = quoted(&page).into_iter().filter(|text| is_path(text));
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 100, "{named:?}");
    for path in named {
        assert!(
            file(path).is_some(),
            "{PAGE} names {path}, which is not there"
        );
    }
}

#[test]
fn every_item_is_in_the_file_that_the_architecture_says() {
    let page = page();
    let named = items_named_in(&page);
    assert!(named.len() > 50, "{named:?}");
    for (item, path) in named {
        let text = fs::read_to_string(file(path).unwrap()).unwrap();
        let name = item.rsplit("::").next().unwrap();
        assert!(
            defines(&text, name),
            "{PAGE} says that {item} is in {path}: it is not"
        );
    }
}

/// Whoever embeds the enrolling client gets neither a server nor a database with it.
#[test]
fn enroll_depends_on_neither_server_nor_store() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--prefix", "none"]);
    cargo.args(["--package", "countersign-enroll", "--edges", "normal,build"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"countersign-pki"), "{names:?}");
    for never in [
        "countersign-authority",
        "countersign-server",
        "countersign-store",
        "rusqlite",
    ] {
        assert!(!names.contains(&never), "{tree}");
    }
}

/// What a door, a product or a client is called, and what Kubernetes calls its users, is the business of doors. Tests may
/// name them.
#[test]
fn the_engine_names_no_door_and_no_product() {
    let names = [
        "puppet",
        "openvox",
        "foreman",
        "kubernetes",
        "openshift",
        "kubelet",
        "kubectl",
        "system:",
    ];
    // Two folders of `policy` are about something that has such names, and nothing outside them is.
    let exempt = [
        // The rules about nodes and pods of a cluster: the objects that they read, the users and groups in certificates.
        "policy/src/node",
        // A resource of openvox-operator, read as it is written there.
        "policy/src/signing_policy",
    ];
    let crates = root().join("crates");
    let exempt = exempt.map(|folder| crates.join(folder));
    assert!(exempt.iter().all(|folder| folder.is_dir()), "{exempt:?}");
    let mut read = 0;
    for krate in ["authority", "policy", "store"] {
        let sources = crates.join(krate).join("src");
        for path in sources_below(&sources) {
            if exempt.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            read += code.lines().count();
            for (number, line) in code.lines().enumerate() {
                let line = line.to_lowercase();
                let named = names.iter().find(|name| line.contains(**name));
                let place = format!("{}:{}", path.display(), number + 1);
                assert_eq!(named, None, "{place} names it: {line}");
            }
        }
    }
    assert!(read > 20_000, "only {read} lines were found");
}

/// Rust files in a folder and below, but none that only tests use.
fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        // `query/plan` holds the query plans that SQLite chooses to what is expected of them.
        let is_for_tests = stem == "tests" || path.with_extension("").ends_with("query/plan");
        if path.is_dir() && !is_for_tests {
            found.extend(sources_below(&path));
        } else if path.extension().is_some_and(|e| e == "rs") && !is_for_tests {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_notation_of_the_page_is_understood() {
    let table = "| Promise | Tests |\n|---|---|\n| it holds | `a_b…`, `…_c` in `pki` and `keys`, `d` in `store` |\n\n`e`";
    let named = tests_named_in(table);
    let expected = [
        ("a_b…", "pki"),
        ("a_b…", "keys"),
        ("…_c", "pki"),
        ("…_c", "keys"),
        ("d", "store"),
    ];
    let expected = expected.map(|(name, krate)| (name.to_owned(), krate.to_owned()));
    assert_eq!(sorted(named), sorted(expected.to_vec()));
    assert!(is_like("a_b", "a_b…") && is_like("a_b_c", "a_b…") && is_like("a_b_c", "a…c"));
    assert!(is_like("a_c", "…_c") && is_like("a_b_a_b", "…a_b") && is_like("a", "a"));
    assert!(!is_like("a_bc", "a_b") && !is_like("x_a_b", "a_b…") && !is_like("a", "a…a"));
    let items = items_named_in("see `a` and `B::c` in\n`store/intents.rs`, `d`, in `pki`");
    let expected = ["B::c", "a"].map(|item| (item, "store/intents.rs"));
    assert_eq!(sorted(items), expected);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join(PAGE)).unwrap()
}

/// The names in the columns headed `Tests`, each with the crates that are named behind it.
fn tests_named_in(page: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    let mut column = None;
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            column = None;
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        match column.and_then(|column: usize| cells.get(column)) {
            Some(cell) => named.extend(tests_of_cell(cell)),
            None => column = cells.iter().position(|cell| *cell == "Tests"),
        }
    }
    named
}

fn tests_of_cell(cell: &str) -> Vec<(String, String)> {
    let (mut named, mut names, mut has_crate) = (Vec::new(), Vec::new(), false);
    for text in quoted(cell) {
        if root().join("crates").join(text).is_dir() {
            has_crate = true;
            named.extend(names.iter().map(|name| (String::from(*name), text.into())));
        } else {
            if has_crate {
                names.clear();
                has_crate = false;
            }
            names.push(text);
        }
    }
    assert!(has_crate || names.is_empty(), "no crate after {names:?}");
    named
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    let outside_of_pictures = text
        .split("```")
        .step_by(2)
        .flat_map(|part| part.split('`').skip(1).step_by(2));
    outside_of_pictures.collect()
}

/// The items of "`a` and `b` in `path.rs`", each with its path.
fn items_named_in(page: &str) -> Vec<(&str, &str)> {
    let mut named = Vec::new();
    for part in page.split("```").step_by(2) {
        let parts: Vec<&str> = part.split('`').collect();
        // Texts between backticks are at odd places; before and behind them is what joins them.
        for place in (1..parts.len()).step_by(2).filter(|at| is_path(parts[*at])) {
            let mut before = place;
            let mut joined_by = vec!["in"];
            while before >= 3 && joined_by.contains(&parts[before - 1].trim()) {
                before -= 2;
                named.push((parts[before], parts[place]));
                joined_by = vec![",", "and"];
            }
        }
    }
    named
}

fn is_path(text: &str) -> bool {
    text.ends_with(".rs")
}

/// Where a path of the page leads: into the engine, or into the crate that it begins with.
fn file(path: &str) -> Option<PathBuf> {
    let crates = root().join("crates");
    let of_crate = path
        .split_once('/')
        .map(|(krate, rest)| (crates.join(krate), rest));
    let mut places = Vec::new();
    if let Some((krate, rest)) = of_crate {
        places.extend([krate.join("src").join(rest), krate.join(rest)]);
    }
    places.push(crates.join("authority/src").join(path));
    places.into_iter().find(|place| place.is_file())
}

fn defines(text: &str, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "const", "static", "type"];
    kinds.iter().any(|kind| {
        let definition = format!("{kind} {name}");
        text.match_indices(&definition).any(|(at, _)| {
            let next = text[at + definition.len()..].chars().next();
            !next.is_some_and(is_of_name)
        })
    })
}

/// The names of all functions of a crate, its tests included.
fn functions_of(krate: &str) -> Vec<String> {
    let mut functions = Vec::new();
    let mut folders = vec![root().join("crates").join(krate)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let behind = text.split("fn ").skip(1);
                functions.extend(behind.map(|rest| {
                    let name = rest.chars().take_while(|letter| is_of_name(*letter));
                    name.collect::<String>()
                }));
            }
        }
    }
    functions
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Whether a name is as it is written on the page, where `…` stands for any characters.
fn is_like(name: &str, written: &str) -> bool {
    match written.split_once('…') {
        None => name == written,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|behind| {
            let places = behind.char_indices().map(|(at, _)| at);
            let mut places = places.chain([behind.len()]);
            places.any(|at| is_like(&behind[at..], rest))
        }),
    }
}

fn sorted<T: Ord>(mut of: Vec<T>) -> Vec<T> {
    of.sort();
    of
}
