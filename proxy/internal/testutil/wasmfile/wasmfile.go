// Package wasmfile writes modules of WebAssembly for tests, instruction by instruction.
package wasmfile

import "encoding/binary"

// Types of values.
const (
	I32 byte = 0x7f
	I64 byte = 0x7e
)

// Instructions, for [Code].
const (
	Unreachable byte = 0x00
	End         byte = 0x0b
	Drop        byte = 0x1a
	Return      byte = 0x0f
	I32Load     byte = 0x28
	I32Store    byte = 0x36
	I32LessS    byte = 0x48
	I32LessU    byte = 0x49
	I32Eqz      byte = 0x45
	I32Equal    byte = 0x46
	I32Add      byte = 0x6a
	I32Sub      byte = 0x6b
	I32DivS     byte = 0x6d
	I32Load8U   byte = 0x2d
)

// A Module is a module to be written. Functions are numbered with the imported ones first, in the order in which
// they are added.
type Module struct {
	imports, funcs, bodies, exports, data, globals [][]byte
	types, elements                                [][]byte
	start                                          []byte
	// Pages is the memory that it begins with, Table the elements of its table; MaxPages is 0 for none.
	Pages, MaxPages, Table uint32
}

func u32(v uint32) []byte { return binary.AppendUvarint(nil, uint64(v)) }

func vector(list [][]byte) []byte {
	b := u32(uint32(len(list)))
	for _, e := range list {
		b = append(b, e...)
	}
	return b
}

func bytesOf(s string) []byte { return append(u32(uint32(len(s))), s...) }

func (m *Module) signature(params, results string) uint32 {
	m.types = append(m.types, append(append([]byte{0x60}, bytesOf(params)...), bytesOf(results)...))
	return uint32(len(m.types) - 1)
}

// Import imports a function, before any is added; params and results are types of values. It returns its number.
func (m *Module) Import(module, name, params, results string) uint32 {
	e := append(append(bytesOf(module), bytesOf(name)...), 0)
	m.imports = append(m.imports, append(e, u32(m.signature(params, results))...))
	return uint32(len(m.imports) - 1)
}

// Func adds a function with locals of type i32, and returns its number. It is exported unless name is empty.
func (m *Module) Func(name, params, results string, locals uint32, code ...[]byte) uint32 {
	body := u32(0)
	if locals > 0 {
		body = append(append(u32(1), u32(locals)...), I32)
	}
	for _, c := range code {
		body = append(body, c...)
	}
	body = append(body, End)
	m.funcs = append(m.funcs, u32(m.signature(params, results)))
	m.bodies = append(m.bodies, append(u32(uint32(len(body))), body...))
	n := uint32(len(m.imports) + len(m.funcs) - 1)
	if name != "" {
		m.Export(name, n)
	}
	return n
}

// Export exports a function under another name.
func (m *Module) Export(name string, function uint32) {
	m.exports = append(m.exports, append(append(bytesOf(name), 0), u32(function)...))
}

// Global adds a mutable global of type i32, and returns its number.
func (m *Module) Global(v int32) uint32 {
	m.globals = append(m.globals, append(append([]byte{I32, 1}, Const(v)...), End))
	return uint32(len(m.globals) - 1)
}

// Element puts a function into the table.
func (m *Module) Element(at int32, function uint32) {
	m.elements = append(m.elements, append(append(append([]byte{0}, Const(at)...), End, 1), u32(function)...))
}

// Start names the function that is called when the module is instantiated.
func (m *Module) Start(function uint32) { m.start = u32(function) }

// Data puts a text into the memory.
func (m *Module) Data(at int32, text string) {
	m.data = append(m.data, append(append(append([]byte{0}, Const(at)...), End), bytesOf(text)...))
}

// Bytes returns the module.
func (m *Module) Bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, content []byte, there bool) {
		if there {
			b = append(append(append(b, id), u32(uint32(len(content)))...), content...)
		}
	}
	section(1, vector(m.types), len(m.types) > 0)
	section(2, vector(m.imports), len(m.imports) > 0)
	section(3, vector(m.funcs), len(m.funcs) > 0)
	section(4, append([]byte{1, 0x70, 0}, u32(m.Table)...), m.Table > 0)
	memory := append([]byte{1, 0}, u32(m.Pages)...)
	exports := m.exports
	if m.MaxPages > 0 {
		memory = append(append([]byte{1, 1}, u32(m.Pages)...), u32(m.MaxPages)...)
	}
	if m.Pages > 0 {
		exports = append(exports[:len(exports):len(exports)], append(bytesOf("memory"), 2, 0))
	}
	section(5, memory, m.Pages > 0)
	section(6, vector(m.globals), len(m.globals) > 0)
	section(7, vector(exports), len(exports) > 0)
	section(8, m.start, m.start != nil)
	section(9, vector(m.elements), len(m.elements) > 0)
	section(10, vector(m.bodies), len(m.bodies) > 0)
	section(11, vector(m.data), len(m.data) > 0)
	return b
}

// Code joins instructions.
func Code(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			b = append(b, p)
		case []byte:
			b = append(b, p...)
		default:
			panic("wasmfile: code is bytes")
		}
	}
	return b
}

// Const is i32.const.
func Const(v int32) []byte { return append([]byte{0x41}, signed(int64(v))...) }

func signed(v int64) (b []byte) {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// Get is local.get, Set local.set, Call call.
func Get(local uint32) []byte { return append([]byte{0x20}, u32(local)...) }

// Set is local.set.
func Set(local uint32) []byte { return append([]byte{0x21}, u32(local)...) }

// GetGlobal is global.get.
func GetGlobal(n uint32) []byte { return append([]byte{0x23}, u32(n)...) }

// SetGlobal is global.set.
func SetGlobal(n uint32) []byte { return append([]byte{0x24}, u32(n)...) }

// Call is call.
func Call(function uint32) []byte { return append([]byte{0x10}, u32(function)...) }

// CallIndirect is call_indirect of a function in the table, with the type of another function.
func (m *Module) CallIndirect(like uint32) []byte {
	t := m.imports[like]
	return append(append([]byte{0x11}, t[len(t)-1]), 0)
}

// Forever is a loop without end.
func Forever() []byte { return []byte{0x03, 0x40, 0x0c, 0, End} }

// While is a loop around code that leaves a number: it begins again unless the number is zero.
func While(code ...any) []byte {
	return append(append([]byte{0x03, 0x40}, Code(code...)...), 0x0d, 0, End)
}

// Load is i32.load, Store i32.store, at an offset.
func Load(offset uint32) []byte { return append([]byte{I32Load, 2}, u32(offset)...) }

// Store is i32.store.
func Store(offset uint32) []byte { return append([]byte{I32Store, 2}, u32(offset)...) }

// Load8 is i32.load8_u.
func Load8(offset uint32) []byte { return append([]byte{I32Load8U, 0}, u32(offset)...) }

// Store8 is i32.store8.
func Store8(offset uint32) []byte { return append([]byte{0x3a, 0}, u32(offset)...) }

// Grow is memory.grow.
func Grow() []byte { return []byte{0x40, 0} }

// If is if without a result.
func If(code ...any) []byte { return append(append([]byte{0x04, 0x40}, Code(code...)...), End) }

// IfInt is if with a result of type i32, and else.
func IfInt(then, otherwise []byte) []byte {
	return append(append(append(append([]byte{0x04, I32}, then...), 0x05), otherwise...), End)
}
