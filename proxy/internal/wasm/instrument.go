package wasm

import "fmt"

// Sections of a module, in their order. See https://webassembly.github.io/spec/core/binary/modules.html.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sections
)

// order is that in which sections come; custom ones come anywhere.
var order = []byte{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport,
	sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

const (
	// maxStack is the stack of an instance, at most, in bytes. wazero doubles a stack that grows, so that up
	// to three times as much is there for a moment.
	maxStack = 4 << 20
	// callsPerLook is after how many calls the deadline is looked at.
	callsPerLook = 128
	// maxTable is the most elements of a table, of 8 bytes each. A module of Go has as many as functions.
	maxTable  = 1 << 16
	maxTables = 8
	// maxLocals is the most locals of a function.
	maxLocals = 4096
	// The most types and imports; functions and exports; elements of segments; and segments.
	maxTypes     = 10_000
	maxFunctions = 100_000
	maxElements  = 4 * maxTable
	maxSegments  = 100_000
	pageSize     = 64 << 10
)

// stackExport is the name of the exported global that holds the bytes of the stack that are left.
const stackExport = "penstock.stack"

// A parsed module is its sections, and the numbers that [instrument] needs of them.
type parsed struct {
	sections      [sections][]byte // nil: there is none
	params        []uint32         // by type; each function has one
	functions     []uint32         // types of the defined functions
	importedFuncs uint32
	globals       uint32
	bodies        []body
	minPages      uint32
}

// A body is the code of a function.
type body struct {
	code   []byte // its declarations of locals too
	weight uint32 // how much stack a call takes at most, in bytes
}

// instrument returns a module that does the same as one, under bounds on its stack and its tables, and that
// looks at its deadline in functions too. Each function gets another one in its place, by which all are
// called:
//
//	if calls == 0 { look at the deadline; calls = callsPerLook }
//	calls--
//	if stack < weight { stack = -1; trap }
//	stack -= weight
//	results = function(parameters)
//	stack += weight
//
// A trap leaves the numbers as they are: the instance is of no further use then.
func instrument(code []byte) (out []byte, minPages uint32, err error) {
	p, err := parse(code)
	if err != nil {
		return nil, 0, err
	}
	if err := p.boundTables(); err != nil {
		return nil, 0, err
	}
	p.addGlobals()
	p.addFunctions()
	out = append(out, code[:8]...)
	for _, id := range order {
		if s := p.sections[id]; s != nil {
			out = append(out, id)
			out = appendU32(out, uint32(len(s)))
			out = append(out, s...)
		}
	}
	return out, p.minPages, nil
}

// parse reads the sections of a module. Whatever it does not look at is wazero's to judge.
func parse(code []byte) (*parsed, error) {
	r := reader{b: code}
	if string(r.take(8)) != "\x00asm\x01\x00\x00\x00" {
		return nil, fmt.Errorf("%w: it does not begin as a module of WebAssembly does (\\0asm, version 1)", ErrInvalid)
	}
	var p parsed
	for len(r.b) > 0 && r.err == nil {
		id := r.byte()
		s := r.take(r.u32())
		switch {
		case r.err != nil || id == sectionCustom: // names and debugging information: dropped
		case id >= sections:
			r.fail("section %d", id)
		case p.sections[id] != nil:
			r.fail("section %d is there twice", id)
		default:
			p.sections[id] = append([]byte{}, s...)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, step := range []func() error{p.readTypes, p.readImports, p.readFunctions, p.readMemory, p.readGlobals, p.readExports, p.readElements, p.readCode, p.readData} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &p, nil
}

func (p *parsed) readTypes() error {
	r := reader{b: p.sections[sectionType]}
	if r.b == nil {
		return nil
	}
	r.each(maxTypes, func() {
		if form := r.byte(); form != 0x60 {
			r.fail("type of form %#x", form)
		}
		p.params = append(p.params, uint32(len(r.take(r.u32()))))
		r.take(r.u32())
	})
	return r.err
}

// readImports reads what is imported. Only functions are offered to a module.
func (p *parsed) readImports() error {
	r := reader{b: p.sections[sectionImport]}
	if r.b == nil {
		return nil
	}
	var refused error
	r.each(maxTypes, func() {
		module, name := r.name(), r.name()
		if kind := r.byte(); kind != 0 {
			kinds := map[byte]string{1: "a table", 2: "a memory", 3: "a global"}
			refused = &ImportError{module, name, kinds[kind] + " is not imported: only functions are"}
			r.fail("import")
		}
		r.u32()
		p.importedFuncs++
	})
	if refused != nil {
		return refused
	}
	return r.err
}

func (p *parsed) readFunctions() error {
	r := reader{b: p.sections[sectionFunction]}
	if r.b == nil {
		return nil
	}
	r.each(maxFunctions, func() {
		t := r.u32()
		if t >= uint32(len(p.params)) {
			r.fail("a function of type %d, of %d", t, len(p.params))
		}
		p.functions = append(p.functions, t)
	})
	return r.err
}

func (p *parsed) readMemory() error {
	r := reader{b: p.sections[sectionMemory]}
	if r.b == nil {
		return nil
	}
	r.each(1, func() {
		if r.byte() > 1 {
			r.fail("a memory that is shared, or of 64 bits")
		}
		p.minPages = r.u32()
	})
	return r.err
}

// readExports looks for the name that is needed.
func (p *parsed) readExports() error {
	r := reader{b: p.sections[sectionExport]}
	if r.b == nil {
		return nil
	}
	r.each(maxFunctions, func() {
		if r.name() == stackExport {
			r.fail("it exports %s", stackExport)
		}
		r.byte()
		r.u32()
	})
	return r.err
}

// readCode reads the bodies. A frame of compiled code has a slot of 16 bytes at most for each local, and for
// each result of an instruction; one of those with results of 16 bytes takes 4 bytes of code, one with results
// of 8 bytes 2.
func (p *parsed) readCode() error {
	r := reader{b: p.sections[sectionCode]}
	if r.b != nil {
		r.each(maxFunctions, func() {
			b := r.take(r.u32())
			of, locals := reader{b: b}, uint64(0)
			of.each(maxLocals, func() {
				locals += uint64(of.u32())
				of.byte()
			})
			if r.err == nil {
				r.err = of.err
			}
			if locals > maxLocals {
				r.fail("a function has %d locals: %d are the most", locals, maxLocals)
			}
			p.bodies = append(p.bodies, body{b, 128 + 16*uint32(locals) + 4*uint32(len(of.b))})
		})
	}
	if r.err == nil && len(p.bodies) != len(p.functions) {
		r.fail("%d functions have %d bodies", len(p.functions), len(p.bodies))
	}
	return r.err
}

// addGlobals adds the number of calls until the next look, and the bytes of stack that are left, of which the
// latter is exported.
func (p *parsed) addGlobals() {
	add := func(section byte, more uint32, entries []byte) {
		r := reader{b: p.sections[section]}
		n := uint32(0)
		if r.b != nil {
			n = r.u32()
		}
		p.sections[section] = append(append(appendU32(nil, n+more), r.b...), entries...)
	}
	mutable := func(b []byte, v int32) []byte { return append(appendI32(append(b, 0x7f, 0x01, 0x41), v), 0x0b) }
	add(sectionGlobal, 2, mutable(mutable(nil, callsPerLook), maxStack))
	name := append(appendU32(nil, uint32(len(stackExport))), stackExport...)
	add(sectionExport, 1, appendU32(append(name, 0x03), p.globals+1))
}

// addFunctions puts a function before each one of the module.
func (p *parsed) addFunctions() {
	n := uint32(len(p.functions))
	if n == 0 {
		return
	}
	types, code := appendU32(nil, 2*n), appendU32(nil, 2*n)
	for range 2 {
		for _, t := range p.functions {
			types = appendU32(types, t)
		}
	}
	for i, b := range p.bodies {
		entry := appendEntry(nil, p.globals, b.weight, p.params[p.functions[i]], p.importedFuncs+n+uint32(i))
		code = append(appendU32(code, uint32(len(entry))), entry...)
	}
	for _, b := range p.bodies {
		code = append(appendU32(code, uint32(len(b.code))), b.code...)
	}
	p.sections[sectionFunction], p.sections[sectionCode] = types, code
}

// appendEntry appends the body of a function that calls another one, see [instrument].
func appendEntry(b []byte, calls, weight, params, function uint32) []byte {
	stack := calls + 1
	get := func(global uint32) { b = appendU32(append(b, 0x23), global) }
	set := func(global uint32) { b = appendU32(append(b, 0x24), global) }
	number := func(v int32) { b = appendI32(append(b, 0x41), v) }
	const eqz, less, add, sub = 0x45, 0x49, 0x6a, 0x6b
	const ifThen, loop, unreachable, end, nothing = 0x04, 0x03, 0x00, 0x0b, 0x40

	b = append(b, 0) // locals
	get(calls)
	b = append(b, eqz, ifThen, nothing, loop, nothing, end)
	number(callsPerLook)
	set(calls)
	b = append(b, end)
	get(calls)
	number(1)
	b = append(b, sub)
	set(calls)
	get(stack)
	number(int32(weight))
	b = append(b, less, ifThen, nothing)
	number(-1)
	set(stack)
	b = append(b, unreachable, end)
	get(stack)
	number(int32(weight))
	b = append(b, sub)
	set(stack)
	for i := range params {
		b = appendU32(append(b, 0x20), i)
	}
	b = appendU32(append(b, 0x10), function)
	get(stack)
	number(int32(weight))
	b = append(b, add)
	set(stack)
	return append(b, end)
}
