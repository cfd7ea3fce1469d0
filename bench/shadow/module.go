package shadow

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// moduleName is the file of the module.
const moduleName = "digits.wasm"

// module is a module of WebAssembly that looks at each byte of a client, and puts asterisks in place of digits. It is written here
// instruction by instruction, since that takes no compiler: https://webassembly.github.io/spec/core/binary/modules.html.
func module() []byte {
	const i32, function = 0x7f, 0x60
	section := func(id byte, content ...byte) []byte {
		return append([]byte{id, byte(len(content) | 0x80), byte(len(content) >> 7)}, content...)
	}
	name := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	data := slices.Concat(
		[]byte{1, 1, i32}, // a local: the index
		[]byte{
			0x41, 1, 0x41, 0, 0x20, 1, 0x41, 16, 0x41, 20, 0x10, 0, 0x1a, // proxy_get_buffer_bytes(1, 0, size, 16, 20), which puts them at 4096
			0x02, 0x40, 0x03, 0x40, // block, loop
			0x20, 3, 0x20, 1, 0x4f, 0x0d, 1, // leave the block if index >= size
			0x20, 3, 0x2d, 0, 0x80, 0x20, // the byte at index
			0x41, 48, 0x6b, 0x41, 10, 0x49, 0x04, 0x40, // if byte - '0' < 10, unsigned
			0x20, 3, 0x41, 42, 0x3a, 0, 0x80, 0x20, // it becomes '*'
			0x0b,
			0x20, 3, 0x41, 1, 0x6a, 0x21, 3, 0x0c, 0, // index++, and again
			0x0b, 0x0b,
			0x41, 1, 0x41, 0, 0x20, 1, 0x41, 0x80, 0x20, 0x20, 1, 0x10, 1, 0x1a, // proxy_set_buffer_bytes(1, 0, size, 4096, size)
			0x41, 0, 0x0b,
		})
	body := func(b []byte) []byte { return append([]byte{byte(len(b))}, b...) }
	env := func(s string, kind byte) []byte { return slices.Concat(name("env"), name(s), []byte{0, kind}) }
	export := func(s string, index byte) []byte { return append(name(s), 0, index) }
	return slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, slices.Concat([]byte{4, function, 5, i32, i32, i32, i32, i32, 1, i32}, []byte{function, 3, i32, i32, i32, 1, i32},
			[]byte{function, 1, i32, 1, i32}, []byte{function, 0, 0})...),
		section(2, slices.Concat([]byte{2}, env("proxy_get_buffer_bytes", 0), env("proxy_set_buffer_bytes", 0))...),
		section(3, 3, 1, 2, 3),
		section(5, 1, 0, 2), // two pages of memory
		section(7, slices.Concat([]byte{4}, export("proxy_on_downstream_data", 2), export("proxy_on_memory_allocate", 3),
			export("proxy_abi_version_0_2_1", 4), append(name("memory"), 2, 0))...),
		section(10, slices.Concat([]byte{3}, body(data), body([]byte{0, 0x41, 0x80, 0x20, 0x0b}), body([]byte{0, 0x0b}))...),
	)
}

// writeModule writes the module to a directory, and returns the keys of a rewrite by it.
func writeModule(dir string) (keys string, err error) {
	path, err := filepath.Abs(filepath.Join(dir, moduleName))
	if err == nil {
		err = os.WriteFile(path, module(), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the module: %w", err)
	}
	return fmt.Sprintf("wasm: %q, timeout: 1s", path), nil
}
