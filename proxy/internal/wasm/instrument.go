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

// order is the order of sections. Custom sections may be anywhere.
var order = []byte{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport,
	sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

const (
	// maxStack is the largest stack of an instance, in bytes. wazero doubles a stack that grows, so that up to three times
	// as much exists for a moment.
	maxStack = 4 << 20
	// stepsPerLook is the number of steps after which compiled code looks at its deadline.
	stepsPerLook = 4096
	// maxTable is the largest number of elements in a table, of 8 bytes each. A module of Go has as many as functions.
	maxTable  = 1 << 16
	maxTables = 8
	// maxLocals is the largest number of locals of a function.
	maxLocals = 4096
	// The largest numbers of types and imports; functions and exports; elements of segments; and segments.
	maxTypes     = 10_000
	maxFunctions = 100_000
	maxElements  = 4 * maxTable
	maxSegments  = 100_000
	pageSize     = 64 << 10
	// maxCode is the largest size of all functions, and maxFunction of one, in bytes. maxBlocks is the largest
	// number of blocks and branches of a function, including the looks. wazero's interpreter needs up to 80 bytes
	// for each byte of code. Its compiler needs up to a kilobyte for each byte of the function at hand, and seconds
	// for 10,000 blocks: the time grows with the square of their number. Go's runtime has 1 MB of code, and
	// functions of 30 KB.
	maxCode     = 8 << 20
	maxFunction = 256 << 10
	maxBlocks   = 10_000
	// maxWork bounds the time to compile a function, and maxAllWork the time for all of them, see [work]. SQLite has less
	// than half of both, and the examples have an eighth.
	maxWork    = 1 << 31
	maxAllWork = 1 << 32
	// maxValues is the largest number of parameters and results of a function with its calls and blocks, and maxAllValues
	// of all functions. The compiler needs a kilobyte for each of the function at hand.
	maxValues    = 1 << 16
	maxAllValues = 1 << 20
	// maxGlobals is the largest number of globals: the compiler looks at all of them in each function.
	maxGlobals = 1000
)

// Names of the exports that [instrument] adds: the global with the bytes of stack that are left, the global that is not
// zero once the deadline has passed, and the module's start function, which is called like others.
const (
	stackExport = "penstock.stack"
	overExport  = "penstock.over"
	startExport = "penstock.start"
)

// Instructions.
const (
	opUnreachable  = 0x00
	opLoop         = 0x03
	opIf           = 0x04
	opEnd          = 0x0b
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opLocalGet     = 0x20
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI32LessS     = 0x48
	opI32LessU     = 0x49
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opRefFunc      = 0xd2
	opBulk         = 0xfc

	noResult = 0x40 // the type of a block
)

// A parsed module holds its sections, and the numbers that [instrument] needs.
type parsed struct {
	sections      [sections][]byte // nil: none
	params        []uint32         // by type; each function has one
	more          []uint32         // results beyond the first, by type
	values        uint64           // values in the present body that its length does not account for
	widest        uint32           // the most of them that one of its blocks takes and returns
	allValues     uint64           // values in all bodies
	work          uint64           // of compiling all bodies, see [work]
	functions     []uint32         // types of the defined functions
	importedFuncs uint32
	indirect      bool // a table may have an imported function
	globals       uint32
	bodies        []body
	minPages      uint32
	start         []byte // index of the start function; nil: none
}

// known fails if the module has no such function. The module may not call the functions that [instrument] adds.
func (p *parsed) known(r *reader, function uint32) {
	if uint64(function) >= uint64(p.importedFuncs)+uint64(len(p.functions)) {
		r.fail("there is no function %d", function)
	}
}

// refers does what known does, for a function that a table may have.
func (p *parsed) refers(r *reader, function uint32) {
	p.indirect = p.indirect || function < p.importedFuncs
	p.known(r, function)
}

// A body is the code of a function.
type body struct {
	code   []byte // including its declarations of locals
	weight uint32 // largest stack of a call, in bytes
}

// instrument returns a module that does the same as the given one, but has bounds on its stack and its tables, and
// looks at its deadline. Each function is called through a new function in its place:
//
//	look at the deadline
//	if stack < weight { stack = -1; trap }
//	stack -= weight
//	results = function(parameters)
//	stack += weight
//
// A trap leaves the numbers as they are, because the instance cannot be used any more.
//
// Compiled code looks at its deadline there, at the head of each loop, and before each instruction that works on memory as
// a whole. It counts these steps. After stepsPerLook steps it leaves the compiled code for Go, because Go's collector waits
// for that, and traps if the global of the deadline is not zero. (wazero's own look leaves the compiled code at the head of
// each loop, which takes longer than most loops' bodies: a module of Go had a tenth of the speed.) It also looks after each
// call of the host, which may have taken long. Interpreted code has wazero's look, that of an empty loop, in all these places.
//
// memory is the largest memory in bytes.
func instrument(code []byte, compiled bool, memory int64) (out []byte, minPages uint32, err error) {
	p, err := parse(code)
	if err != nil {
		return nil, 0, err
	}
	if err := p.boundTables(); err != nil {
		return nil, 0, err
	}
	var head []byte // wazero looks at the head of a loop that is interpreted
	look := []byte{opLoop, noResult, opEnd}
	bulk, host := look, look
	if compiled {
		host = p.appendTrap(nil)
		head = p.appendLook(nil, 1)
		bulk = p.appendLook(nil, int32(min(stepsPerLook/16*memory>>20, stepsPerLook)+1))
		look = head
		if p.sections[sectionMemory] == nil { // the look needs a memory
			p.sections[sectionMemory] = []byte{1, 1, 0, 0}
		}
	}
	for i, b := range p.bodies {
		if p.bodies[i].code, err = p.lookAtLoops(b.code, p.functions[i], head, bulk, host); err != nil {
			return nil, 0, fmt.Errorf("%w (in function %d)", err, p.importedFuncs+uint32(i))
		}
		p.bodies[i].weight += uint32(min(16*p.values, maxStack))
	}
	p.addGlobals()
	p.addFunctions(look)
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

// parse reads the sections of a module. wazero checks the rest.
func parse(code []byte) (*parsed, error) {
	r := reader{b: code}
	if string(r.take(8)) != "\x00asm\x01\x00\x00\x00" {
		return nil, fmt.Errorf("%w: it does not begin like a WebAssembly module (\\0asm, version 1)", ErrInvalid)
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
			r.fail("it has section %d twice", id)
		default:
			p.sections[id] = append([]byte{}, s...)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, step := range []func() error{p.readTypes, p.readImports, p.readFunctions, p.readMemory, p.readGlobals, p.readExports, p.readStart, p.readElements, p.readCode, p.readData} {
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
		p.more = append(p.more, uint32(max(len(r.take(r.u32())), 1)-1))
	})
	return r.err
}

// readImports reads the imports. A module may import only functions.
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
	if r.each(1, func() {
		if r.byte() > 1 {
			r.fail("a memory that is shared, or of 64 bits")
		}
		p.minPages = r.u32()
	}) == 0 {
		p.sections[sectionMemory] = nil // a section without a memory
	}
	return r.err
}

func (p *parsed) readExports() error {
	r := reader{b: p.sections[sectionExport]}
	if r.b == nil {
		return nil
	}
	r.each(maxFunctions, func() {
		if name := r.name(); name == stackExport || name == overExport || name == startExport {
			r.fail("it exports %s", name)
		}
		switch kind, index := r.byte(), r.u32(); {
		case kind == 0:
			p.refers(&r, index)
		case kind == 3 && index >= p.globals:
			r.fail("there is no global %d", index)
		}
	})
	return r.err
}

// readStart takes the start function out of its section, so that its time is bounded like other calls'.
func (p *parsed) readStart() error {
	r := reader{b: p.sections[sectionStart]}
	if r.b == nil {
		return nil
	}
	p.start, p.sections[sectionStart] = r.b, nil
	p.known(&r, r.u32())
	return r.err
}

// readCode reads the bodies. A frame of compiled code has a slot of at most 16 bytes for each local, and for each result of
// an instruction. An instruction with results of 16 bytes takes 4 bytes of code, one with results of 8 bytes takes 2.
// [instrument] adds parameters, and results beyond the first.
func (p *parsed) readCode() error {
	r := reader{b: p.sections[sectionCode]}
	if len(r.b) > maxCode {
		r.fail("it has %d bytes of code, more than %d", len(r.b), maxCode)
	}
	if r.b != nil {
		r.each(maxFunctions, func() {
			b := r.take(r.u32())
			if len(b) > maxFunction {
				r.fail("function %d has %d bytes, more than %d", p.importedFuncs+uint32(len(p.bodies)), len(b), maxFunction)
			}
			of, locals := reader{b: b}, uint64(0)
			of.each(maxLocals, func() {
				locals += uint64(of.u32())
				of.byte()
			})
			if r.err == nil {
				r.err = of.err
			}
			if locals > maxLocals {
				r.fail("a function has %d locals, more than %d", locals, maxLocals)
			}
			p.bodies = append(p.bodies, body{b, 128 + 16*uint32(locals) + 4*uint32(len(of.b))})
		})
	}
	if r.err == nil && len(p.bodies) != len(p.functions) {
		r.fail("%d functions have %d bodies", len(p.functions), len(p.bodies))
	}
	return r.err
}

// addGlobals adds three globals: the bytes of stack that are left, whether the deadline has passed, and the steps until the
// next look. It exports the first two, and the start function.
func (p *parsed) addGlobals() {
	add := func(section byte, more uint32, entries []byte) {
		r := reader{b: p.sections[section]}
		n := uint32(0)
		if r.b != nil {
			n = r.u32()
		}
		p.sections[section] = append(append(appendU32(nil, n+more), r.b...), entries...)
	}
	mutable := func(b []byte, v int32) []byte { return append(appendI32(append(b, 0x7f, 0x01, opI32Const), v), opEnd) }
	export := func(b []byte, name string, kind byte) []byte {
		return append(append(appendU32(b, uint32(len(name))), name...), kind)
	}
	add(sectionGlobal, 3, mutable(mutable(mutable(nil, maxStack), 0), stepsPerLook))
	exports := appendU32(export(nil, stackExport, 3), p.globals)
	exports = appendU32(export(exports, overExport, 3), p.globals+1)
	n := uint32(2)
	if p.start != nil {
		exports = append(export(exports, startExport, 0), p.start...)
		n++
	}
	add(sectionExport, n, exports)
}

// appendLook appends a look at the deadline, which counts as a number of steps, see [instrument].
func (p *parsed) appendLook(b []byte, steps int32) []byte {
	left := p.globals + 2
	b = appendI32(append(appendU32(append(b, opGlobalGet), left), opI32Const), steps)
	b = appendU32(append(b, opI32Sub, opGlobalSet), left)
	b = append(appendU32(append(b, opGlobalGet), left), opI32Const, 0, opI32LessS, opIf, noResult)
	b = appendI32(append(b, opI32Const), stepsPerLook)
	b = appendU32(append(b, opGlobalSet), left)
	b = append(b, opI32Const, 0, opMemoryGrow, 0, opDrop) // memory.grow by 0 leaves the compiled code
	return append(p.appendTrap(b), opEnd)
}

// appendTrap appends a trap if the deadline has passed.
func (p *parsed) appendTrap(b []byte) []byte {
	b = appendU32(append(b, opGlobalGet), p.globals+1)
	return append(b, opIf, noResult, opUnreachable, opEnd)
}

// addFunctions puts a function in front of each function of the module.
func (p *parsed) addFunctions(look []byte) {
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
		entry := p.appendEntry(append([]byte{0}, look...), b.weight, p.params[p.functions[i]], p.importedFuncs+n+uint32(i))
		code = append(appendU32(code, uint32(len(entry))), entry...)
	}
	for _, b := range p.bodies {
		code = append(appendU32(code, uint32(len(b.code))), b.code...)
	}
	p.sections[sectionFunction], p.sections[sectionCode] = types, code
}

// appendEntry appends the rest of the body of a function that calls another one, see [instrument].
func (p *parsed) appendEntry(b []byte, weight, params, function uint32) []byte {
	get := func() { b = appendU32(append(b, opGlobalGet), p.globals) }
	set := func() { b = appendU32(append(b, opGlobalSet), p.globals) }
	number := func(v int32) { b = appendI32(append(b, opI32Const), v) }

	get()
	number(int32(weight))
	b = append(b, opI32LessU, opIf, noResult)
	number(-1)
	set()
	b = append(b, opUnreachable, opEnd)
	get()
	number(int32(weight))
	b = append(b, opI32Sub)
	set()
	for i := range params {
		b = appendU32(append(b, opLocalGet), i)
	}
	b = appendU32(append(b, opCall), function)
	get()
	number(int32(weight))
	b = append(b, opI32Add)
	set()
	return append(b, opEnd)
}
