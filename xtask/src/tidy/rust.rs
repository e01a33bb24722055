//! One Rust file taken apart: its functions, its modules, its tests, its calls.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What the rules need of a file's syntax.
pub struct Rust {
    /// Every function with a body, closures excepted.
    pub functions: Vec<Function>,
    /// Every `mod name;`.
    pub modules: Vec<Module>,
    /// Every call or macro that might be banned.
    pub calls: Vec<Call>,
    /// Whether the file's inner attributes hold `forbid(unsafe_code)`.
    pub forbids_unsafe: bool,
    tests: Vec<RangeInclusive<usize>>,
}

/// A function with a body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// The lines from `fn` to the last brace.
    pub lines: RangeInclusive<usize>,
}

/// A module that lies in a file of its own.
pub struct Module {
    /// The names of the inline modules around it, then its own.
    pub path: Vec<String>,
    /// Its `#[path]`.
    pub file: Option<String>,
    /// Whether it is compiled for tests alone.
    pub test: bool,
}

/// Something called: `.name(` for a method, `name!` for a macro, `a::name(` for a path.
pub struct Call {
    /// As above.
    pub what: String,
    /// Where.
    pub line: usize,
}

impl Rust {
    /// Takes a file's text apart.
    pub fn parse(text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut visitor = Visitor::default();
        visitor.visit_file(&file);
        let mut calls = Vec::new();
        collect_calls(text.parse::<TokenStream>()?, &mut calls);
        let forbids_unsafe = file.attrs.iter().any(|attribute| {
            attribute.path().is_ident("forbid")
                && attribute.parse_args::<syn::Path>().is_ok_and(|lint| lint.is_ident("unsafe_code"))
        });
        let Visitor { functions, modules, tests, .. } = visitor;
        Ok(Self { functions, modules, calls, forbids_unsafe, tests })
    }

    /// Whether the line belongs to a test or to a module compiled for tests alone.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }
}

#[derive(Default)]
struct Visitor {
    functions: Vec<Function>,
    modules: Vec<Module>,
    tests: Vec<RangeInclusive<usize>>,
    inside: Vec<String>,
}

impl Visitor {
    fn function(&mut self, signature: &syn::Signature, attributes: &[syn::Attribute], whole: Span) {
        let lines = signature.span().start().line..=whole.end().line;
        self.functions.push(Function { name: signature.ident.to_string(), lines: lines.clone() });
        if attributes.iter().any(is_test) {
            self.tests.push(lines);
        }
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.attrs, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.attrs, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if item.default.is_some() {
            self.function(&item.sig, &item.attrs, item.span());
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.attrs.iter().any(is_test) {
            self.tests.push(item.span().start().line..=item.span().end().line);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let test = item.attrs.iter().any(is_test);
        self.inside.push(item.ident.to_string());
        if item.content.is_some() {
            if test {
                self.tests.push(item.span().start().line..=item.span().end().line);
            }
            visit::visit_item_mod(self, item);
        } else {
            let file = item.attrs.iter().find_map(path_attribute);
            self.modules.push(Module { path: self.inside.clone(), file, test });
        }
        self.inside.pop();
    }
}

/// `#[test]`, or a `#[cfg(..)]` that names `test`.
fn is_test(attribute: &syn::Attribute) -> bool {
    let names_test = |list: &syn::MetaList| {
        let text = list.tokens.to_string();
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == "test") && !text.contains("not")
    };
    attribute.path().is_ident("test")
        || attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(names_test)
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let value = attribute.meta.require_name_value().ok().filter(|value| value.path.is_ident("path"))?;
    match &value.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Reads calls from tokens, so that those inside macro calls are seen too.
fn collect_calls(tokens: TokenStream, calls: &mut Vec<Call>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punctuation = |index: usize| match tokens.get(index) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    for (index, token) in tokens.iter().enumerate() {
        let name = match token {
            TokenTree::Group(group) => {
                collect_calls(group.stream(), calls);
                continue;
            }
            TokenTree::Ident(ident) => ident.to_string(),
            _ => continue,
        };
        let line = token.span().start().line;
        let called = matches!(tokens.get(index + 1),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        let before = |back: usize| index.checked_sub(back);
        let what = if punctuation(index + 1) == Some('!') && punctuation(index + 2) != Some('=') {
            format!("{name}!")
        } else if called && before(1).and_then(punctuation) == Some('.') {
            format!(".{name}(")
        } else if called && before(1).and_then(punctuation) == Some(':') {
            match before(3).and_then(|index| tokens.get(index)) {
                Some(TokenTree::Ident(of)) => format!("{of}::{name}("),
                _ => continue,
            }
        } else {
            continue;
        };
        calls.push(Call { what, line });
    }
}
