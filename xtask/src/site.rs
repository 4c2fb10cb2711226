//! What the browser gets: WASM, bindings, styles and fonts in `target/site`.
//!
//! Names hold a hash of the content, so that they can be cached for ever;
//! `pkg/manifest.json` says which are current. Each step has a stamp, the hash of
//! what went into it, and is left out when nothing changed.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};
use wasm_bindgen_cli_support::Bindgen;

use crate::{Failure, Places, Profile, npm, run};

/// What the browser runs.
pub const TARGET: &str = "wasm32-unknown-unknown";
/// The name of the bindings, the WASM and the style sheet.
const NAME: &str = "countersign";
/// The packages people run.
const PROGRAMS: [&str; 6] = ["-p", "server", "-p", "worker", "-p", "demo-agent"];
/// Small, and without what only tools read.
const OPTIMISE: [&str; 4] = ["-Oz", "--strip-debug", "--strip-producers", "--strip-target-features"];

/// Whether the programs are compiled too, or were by an earlier stage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Native {
    Build,
    Built,
}

/// Builds the programs of `profile` and the site.
pub fn build(places: &Places, profile: Profile, native: Native) -> Result<(), Failure> {
    step(1, "WASM target");
    add_target()?;

    if native == Native::Build {
        step(2, "server, worker, demo agent and frontend; the first time takes minutes");
        let mut arguments = vec!["build"];
        arguments.extend(PROGRAMS);
        if profile == Profile::Release {
            arguments.push("--release");
        }
        run::run(&mut run::cargo(places, &arguments))?;
    } else {
        step(2, "frontend");
    }
    let frontend = ["build", "-p", "frontend", "--lib", "--target", TARGET, "--profile", "wasm-release"];
    run::run(&mut run::cargo(places, &frontend))?;
    let wasm = places.target.join(TARGET).join("wasm-release/frontend.wasm");

    step(3, "bindings");
    let bound = places.target.join("xtask/bindings");
    let stamp = Stamp::new(places, "bindings", &[&read(&wasm)?]);
    if !stamp.is_current(&[&bound.join(format!("{NAME}.js"))]) {
        let _ = fs::remove_dir_all(&bound);
        Bindgen::new()
            .input_path(&wasm)
            .out_name(NAME)
            .typescript(false)
            .remove_name_section(true)
            .remove_producers_section(true)
            // The page says where the WASM is: its name holds a hash.
            .omit_default_module_path(true)
            .web(true)
            .and_then(|bindgen| bindgen.generate(&bound))
            .map_err(|cause| format!("The bindings could not be made: {cause:#}."))?;
        stamp.write()?;
    }

    step(4, "smaller WASM");
    let small = optimise(places, &bound.join(format!("{NAME}_bg.wasm")))?;

    step(5, "site");
    assemble(places, &bound, &small)
}

fn step(number: u8, what: &str) {
    println!("{number}/5 {what}");
}

/// Adds the target where it is missing.
pub fn add_target() -> Result<(), Failure> {
    let by_hand = format!("Add it by hand: rustup target add {TARGET}");
    match run::output("rustup", &["target", "list", "--installed"]) {
        Some(installed) if installed.lines().any(|line| line == TARGET) => Ok(()),
        Some(_) => run::run(Command::new("rustup").args(["target", "add", TARGET]))
            .map_err(|_| format!("rustup could not add the target {TARGET}. {by_hand}")),
        None => {
            // A Rust of the distribution may bring the target itself.
            let root = run::output("rustc", &["--print", "sysroot"]).unwrap_or_default();
            if Path::new(&root).join("lib/rustlib").join(TARGET).exists() {
                Ok(())
            } else {
                Err(format!(
                    "The Rust target {TARGET} is missing and there is no rustup to add it. Install rustup."
                ))
            }
        }
    }
}

/// The WASM after `wasm-opt`, or as it is where there is no Node.
fn optimise(places: &Places, wasm: &Path) -> Result<PathBuf, Failure> {
    let package = match npm::BINARYEN.folder(places) {
        Ok(package) => package,
        Err(why) => {
            println!("    the WASM stays larger than it could be, without wasm-opt: {why}.");
            return Ok(wasm.to_owned());
        }
    };
    let program = package.join("bin/wasm-opt");
    let small = places.target.join("xtask/small.wasm");
    let stamp = Stamp::new(places, "small", &[&read(wasm)?, program.as_os_str().as_encoded_bytes()]);
    if !stamp.is_current(&[&small]) {
        let mut command = Command::new("node");
        command.arg(&program).args(OPTIMISE).arg(wasm).arg("-o").arg(&small);
        if let Err(why) = run::run(&mut command) {
            println!("    the WASM stays larger than it could be: {why}");
            return Ok(wasm.to_owned());
        }
        stamp.write()?;
    }
    Ok(small)
}

fn assemble(places: &Places, bound: &Path, wasm: &Path) -> Result<(), Failure> {
    let site = places.site();
    let js = read(&bound.join(format!("{NAME}.js")))?;
    let wasm = read(wasm)?;
    let css = styles(&places.root.join("style"))?;
    let assets = files_under(&places.root.join("style/assets"));
    let font = match npm::INTER.folder(places) {
        Ok(package) => Some(package.join("files/inter-latin-wght-normal.woff2")),
        Err(why) => {
            println!("    pages use the system's typeface instead of Inter: {why}.");
            None
        }
    };
    let mut inputs: Vec<Vec<u8>> = vec![js.clone(), wasm.clone(), css.clone().into_bytes()];
    for file in assets.iter().chain(&font) {
        inputs.push(file.as_os_str().as_encoded_bytes().to_vec());
        inputs.push(read(file)?);
    }
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let stamp = Stamp::new(places, "site", &inputs);
    let manifest = site.join("pkg/manifest.json");
    if !stamp.is_current(&[&manifest]) {
        // Made beside and swapped in, so that a running server never serves half a site.
        let fresh = places.target.join("xtask/site");
        let _ = fs::remove_dir_all(&fresh);
        let package = fresh.join("pkg");
        make_folder(&package)?;
        let mut names = serde_json::Map::new();
        for (kind, bytes) in [("js", &js[..]), ("wasm", &wasm), ("css", css.as_bytes())] {
            let hash = &hex::encode(Sha256::digest(bytes))[..8];
            let name = format!("{NAME}.{hash}.{kind}");
            write(&package.join(&name), bytes)?;
            write(&package.join(format!("{name}.br")), &brotli(bytes)?)?;
            write(&package.join(format!("{name}.gz")), &gzip(bytes)?)?;
            // The plain name, for people and for tools that expect it.
            write(&package.join(format!("{NAME}.{kind}")), bytes)?;
            names.insert(kind.to_owned(), name.into());
        }
        let snippets = bound.join("snippets");
        for file in files_under(&snippets) {
            copy(&file, &package.join("snippets"), &snippets)?;
        }
        for file in &assets {
            copy(file, &fresh, &places.root.join("style/assets"))?;
        }
        if let Some(font) = &font {
            copy(font, &fresh.join("fonts"), font.parent().unwrap_or(font))?;
        }
        let text = serde_json::to_string_pretty(&names).map_err(|cause| cause.to_string())?;
        write(&package.join("manifest.json"), text.as_bytes())?;
        let old = places.target.join("xtask/old-site");
        let _ = fs::remove_dir_all(&old);
        let _ = fs::rename(&site, &old);
        fs::rename(&fresh, &site)
            .map_err(|cause| format!("{} could not be replaced: {cause}.", site.display()))?;
        stamp.write()?;
    }
    let kilobytes =
        |name: &str| fs::metadata(site.join("pkg").join(name)).map_or(0, |file| file.len()) / 1000;
    let names =
        fs::read(&manifest).ok().and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    if let Some(name) = names.as_ref().and_then(|names| names["wasm"].as_str()) {
        println!("    {} kB of WASM, {} kB as brotli", kilobytes(name), kilobytes(&format!("{name}.br")));
    }
    Ok(())
}

/// All style sheets as one, in the order of the imports of `main.css`.
fn styles(folder: &Path) -> Result<String, Failure> {
    let names = match fs::read_to_string(folder.join("main.css")) {
        Ok(main) => imports(&main),
        Err(_) => by_name(folder),
    };
    let mut all = String::new();
    for name in names {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path)
            .map_err(|cause| format!("{} can't be read: {cause}.", path.display()))?;
        let _ = write!(all, "/* {name} */\n{text}\n");
    }
    // Without a main sheet's own rules: it holds imports only.
    Ok(all)
}

/// The names in `@import url("x.css");` and `@import "x.css";`, in order.
fn imports(main: &str) -> Vec<String> {
    main.lines()
        .filter_map(|line| line.trim().strip_prefix("@import"))
        .filter_map(|rest| rest.split(['"', '\'']).nth(1))
        .map(|name| name.trim_start_matches("./").to_owned())
        .collect()
}

fn by_name(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|kind| kind == "css"))
        .collect();
    names.sort_by_key(|name| (name != "tokens.css", name != "components.css", name.clone()));
    names
}

/// The files in a folder and those inside it, sorted. None where it is missing.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() {
            files.append(&mut files_under(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

fn brotli(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut small = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 22, ..Default::default() };
    brotli::BrotliCompress(&mut &*bytes, &mut small, &parameters)
        .map_err(|cause| format!("Compressing failed: {cause}."))?;
    Ok(small)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .map_err(|cause| format!("Compressing failed: {cause}."))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|cause| format!("{} can't be read: {cause}.", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|cause| format!("{} can't be written: {cause}.", path.display()))
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|cause| format!("{} can't be made: {cause}.", path.display()))
}

/// Copies a file that is somewhere under `from` to the same place under `to`.
fn copy(file: &Path, to: &Path, from: &Path) -> Result<(), Failure> {
    let place = to.join(file.strip_prefix(from).unwrap_or(file));
    make_folder(place.parent().unwrap_or(to))?;
    fs::copy(file, &place).map_err(|cause| format!("{} can't be written: {cause}.", place.display()))?;
    Ok(())
}

/// The hash of what went into a step, kept when the step is done.
struct Stamp {
    file: PathBuf,
    hash: String,
}

impl Stamp {
    fn new(places: &Places, step: &str, inputs: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        // This program decides what the steps do.
        hash.update(include_bytes!("site.rs"));
        for input in inputs {
            hash.update((input.len() as u64).to_le_bytes());
            hash.update(input);
        }
        Self {
            file: places.target.join("xtask").join(format!("{step}.stamp")),
            hash: hex::encode(hash.finalize()),
        }
    }

    /// Whether the step is done already and its results are still there.
    fn is_current(&self, results: &[&Path]) -> bool {
        results.iter().all(|result| result.exists())
            && fs::read_to_string(&self.file).is_ok_and(|hash| hash == self.hash)
    }

    fn write(&self) -> Result<(), Failure> {
        make_folder(self.file.parent().unwrap_or(&self.file))?;
        write(&self.file, self.hash.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_keep_their_order() {
        let main = "/* x */\n@import url(\"tokens.css\");\n@import './base.css';\n.a { color: red }\n";
        assert_eq!(imports(main), ["tokens.css", "base.css"]);
    }

    #[test]
    fn twins_hold_the_same_bytes() {
        let bytes = b"the same line\n".repeat(100);
        let mut back = Vec::new();
        brotli::BrotliDecompress(&mut &*brotli(&bytes).unwrap(), &mut back).unwrap();
        assert_eq!(back, bytes);
        let mut back = Vec::new();
        let zipped = gzip(&bytes).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*zipped), &mut back).unwrap();
        assert_eq!(back, bytes);
    }
}
