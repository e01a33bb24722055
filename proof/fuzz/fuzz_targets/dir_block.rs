#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hostile::run("dir_block", data);
});
