//! One parsed Rust file: functions, modules, tests, calls.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The syntax of a file, as far as the rules need it.
pub struct Rust {
    /// Functions with a body, without closures.
    pub functions: Vec<Function>,
    /// Names of declared structs, enums, traits and type aliases, with their lines.
    pub types: Vec<(String, usize)>,
    /// Modules in files of their own (`mod name;`).
    pub modules: Vec<Module>,
    /// Calls of functions, methods and macros.
    pub calls: Vec<Call>,
    /// Whether the file has `#![forbid(unsafe_code)]`.
    pub forbids_unsafe: bool,
    tests: Vec<RangeInclusive<usize>>,
}

/// A function with a body.
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Lines from `fn` to the closing brace.
    pub lines: RangeInclusive<usize>,
}

/// A module in a file of its own.
pub struct Module {
    /// Names of the enclosing inline modules, then its own.
    pub path: Vec<String>,
    /// Value of `#[path]`.
    pub file: Option<String>,
    /// Whether it is compiled only for tests.
    pub test: bool,
}

/// A call.
pub struct Call {
    /// `.name(` for a method, `name!` for a macro, `a::name(` for a path.
    pub name: String,
    /// Line number.
    pub line: usize,
}

impl Rust {
    /// Parses a file.
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
        let Visitor { functions, types, modules, tests, .. } = visitor;
        Ok(Self { functions, types, modules, calls, forbids_unsafe, tests })
    }

    /// Whether a line belongs to a test or to a module that is compiled only for tests.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }
}

#[derive(Default)]
struct Visitor {
    functions: Vec<Function>,
    types: Vec<(String, usize)>,
    modules: Vec<Module>,
    tests: Vec<RangeInclusive<usize>>,
    inside: Vec<String>,
}

impl Visitor {
    fn type_name(&mut self, name: &syn::Ident) {
        self.types.push((name.to_string(), name.span().start().line));
    }

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

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_name(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_name(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.type_name(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_name(&item.ident);
        visit::visit_item_trait(self, item);
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
            let path = &self.inside;
            let conditional = item.attrs.iter().filter_map(conditional_path);
            self.modules.extend(conditional.map(|file| Module {
                path: path.clone(),
                file: Some(file),
                test,
            }));
            self.modules.push(Module { path: path.clone(), file, test });
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

/// The file of `#[path = "file"]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    path_value(&attribute.meta)
}

/// The file of `#[cfg_attr(condition, path = "file")]`: another file of the same module.
fn conditional_path(attribute: &syn::Attribute) -> Option<String> {
    let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg_attr"))?;
    let metas = list.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated).ok()?;
    metas.iter().skip(1).find_map(path_value)
}

fn path_value(meta: &syn::Meta) -> Option<String> {
    let value = meta.require_name_value().ok().filter(|value| value.path.is_ident("path"))?;
    match &value.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Collects calls from tokens, so that calls in arguments of macros are included.
fn collect_calls(tokens: TokenStream, calls: &mut Vec<Call>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punctuation = |index: usize| match tokens.get(index) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    for (index, token) in tokens.iter().enumerate() {
        let ident = match token {
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
        let name = if punctuation(index + 1) == Some('!') && punctuation(index + 2) != Some('=') {
            format!("{ident}!")
        } else if called && before(1).and_then(punctuation) == Some('.') {
            format!(".{ident}(")
        } else if called && before(1).and_then(punctuation) == Some(':') {
            match before(3).and_then(|index| tokens.get(index)) {
                Some(TokenTree::Ident(of)) => format!("{of}::{ident}("),
                _ => continue,
            }
        } else {
            continue;
        };
        calls.push(Call { name, line });
    }
}
