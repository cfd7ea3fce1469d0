package wasm

// lookAtLoops returns a function's body with more code: head at the beginning of each loop, bulk before each
// instruction that works on memory or a table as a whole, and host after each call of a function that may be the
// host's. It fails if the body names a function or a global that only [instrument] adds. wazero finds all other
// mistakes. It also fails if compiling the function, of type t, takes too long.
func (p *parsed) lookAtLoops(code []byte, t uint32, head, bulk, host []byte) ([]byte, error) {
	r, locals := reader{b: code}, p.params[t]
	r.each(maxLocals, func() {
		locals += r.u32()
		r.byte()
	})
	p.values, p.widest = 0, 0
	p.takes(&r, t, true) // the values of this function and of the one in front
	p.takes(&r, t, true)
	if r.err != nil {
		return nil, r.err
	}
	w := work{set: make([]int, locals)}
	out := make([]byte, 0, len(code)+len(code)/8)
	done, blocks := 0, 0
	for r.err == nil && len(r.b) > 0 {
		here := len(code) - len(r.b)
		op := r.byte()
		conversion := len(r.b) > 0 && r.b[0] < 8
		operands := r
		switch {
		case 0x02 <= op && op <= 0x05, op == 0x0d: // block, loop, if, else, br_if
			blocks++
		case op == 0x0e: // br_table
			blocks += int(min(operands.u32(), maxBlocks)) + 1
		}
		w.step(op, operands)
		p.immediates(&r, op)
		look := head
		switch {
		case op == opLoop:
			here = len(code) - len(r.b)
		case op == opBulk && !conversion:
			look = bulk
		case op == opCall && operands.u32() < p.importedFuncs, op == opCallIndirect && p.indirect:
			here, look = len(code)-len(r.b), host
		default:
			continue
		}
		blocks += 4 // the blocks of the look
		out = append(append(out, code[done:here]...), look...)
		done = here
	}
	if blocks > maxBlocks {
		r.fail("a function has %d blocks and branches, more than %d", blocks, maxBlocks)
	}
	w.live += int(p.widest)
	units := w.units(blocks)
	switch p.work += units; {
	case units > maxWork:
		r.fail("a function takes too long to compile: it has %d values in use over %d blocks and branches: let the compiler optimize it, or split it", w.live, blocks)
	case p.work > maxAllWork:
		r.fail("its functions take too long to compile: they have too many values in use over blocks and branches: leave out code")
	}
	return append(out, code[done:]...), r.err
}

// work is what makes wazero slow to compile a function. Its compiler passes each local that is in use over a block to the
// block, and for each branch goes back to the place where the local was set. It does so again for each loop around a loop.
type work struct {
	set    []int // by local: the stretch without blocks in which it was set last; -1: it is in use over a block
	now    int   // the present stretch
	live   int   // values in use over blocks
	open   []byte
	loops  int // of open
	nested int // blocks that loops within loops count for
}

// step looks at the next instruction.
func (w *work) step(op byte, operands reader) {
	switch op {
	case 0x02, opLoop, opIf:
		w.open = append(w.open, op)
		if op == opLoop {
			w.nested += 6 * w.loops
			w.loops++
			w.now++
		}
	case 0x05: // else
		w.now++
	case opEnd:
		w.now++
		if last := len(w.open) - 1; last >= 0 {
			if w.open[last] == opLoop {
				w.loops--
			}
			w.open = w.open[:last]
		}
	case 0x20, 0x21, 0x22: // local.get, local.set, local.tee
		local := operands.u32()
		switch {
		case local >= uint32(len(w.set)) || w.set[local] < 0:
		case op != 0x20:
			w.set[local] = w.now
		case w.set[local] != w.now:
			w.set[local] = -1
			w.live++
		}
	}
}

// units returns the time in units of at most 4 ns.
func (w *work) units(blocks int) uint64 {
	blocks += w.nested
	values := w.live + 3 // the compiler's own
	return uint64(values) * uint64(blocks) * uint64(values+blocks)
}

// immediates reads the immediates of an instruction of WebAssembly 2.0 (section 5.4 of its specification).
func (p *parsed) immediates(r *reader, op byte) {
	switch {
	case 0x02 <= op && op <= opIf: // block, loop, if
		if t := *r; len(t.b) > 0 && t.b[0]&0xc0 != 0x40 { // a type of a function
			p.takes(r, t.u32(), true)
		}
		r.signed()
	case op == opI32Const, op == 0x42: // i32.const, i64.const
		r.signed()
	case op == 0x0c, op == 0x0d, 0x20 <= op && op <= 0x22, op == 0x25, op == 0x26: // br, br_if, local.*, table.get and table.set
		r.u32()
	case op == 0x0e: // br_table
		r.each(maxFunctions, func() { r.u32() })
		r.u32()
	case op == opCall:
		f := r.u32()
		if p.known(r, f); r.err == nil && f >= p.importedFuncs { // functions of the host have one result at most
			p.takes(r, p.functions[f-p.importedFuncs], false)
		}
	case op == opRefFunc:
		p.refers(r, r.u32())
	case op == opCallIndirect:
		p.takes(r, r.u32(), false)
		r.u32()
	case op == 0x1c: // select with types
		r.each(maxLocals, func() { r.byte() })
	case op == opGlobalGet, op == opGlobalSet:
		if g := r.u32(); g >= p.globals {
			r.fail("there is no global %d", g)
		}
	case 0x28 <= op && op <= 0x3e: // loads and stores: alignment, offset
		r.u32()
		r.u32()
	case op == 0x3f, op == 0x40, op == 0xd0: // memory.size, memory.grow, ref.null
		r.byte()
	case op == 0x43: // f32.const
		r.take(4)
	case op == 0x44: // f64.const
		r.take(8)
	case op == opBulk:
		r.bulk()
	case op == 0xfd:
		r.vector()
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, 0x45 <= op && op <= 0xc4, op == 0xd1:
	default:
		r.fail("instruction %#x", op)
	}
}

// takes adds the values of a call of a type, or of a block.
func (p *parsed) takes(r *reader, t uint32, block bool) {
	if t >= uint32(len(p.params)) {
		r.fail("there is no type %d", t)
		return
	}
	values := uint64(p.more[t])
	if block {
		values += uint64(p.params[t])
		p.widest = max(p.widest, uint32(values))
	}
	p.values += values
	switch p.allValues += values; {
	case p.values > maxValues:
		r.fail("a function has blocks and calls with %d parameters and results, more than %d", p.values, maxValues)
	case p.allValues > maxAllValues:
		r.fail("it has blocks and calls with %d parameters and results, more than %d", p.allValues, maxAllValues)
	}
}

// bulk reads the rest of an instruction that begins with 0xfc: conversions, and work on memories and tables as a whole.
func (r *reader) bulk() {
	switch op := r.u32(); {
	case op <= 7: // trunc_sat
	case op == 9, op == 13, 15 <= op && op <= 17, op == 11: // data.drop, elem.drop, table.grow, table.size, table.fill, memory.fill
		r.u32()
	case op == 8, op == 10, op == 12, op == 14: // memory.init, memory.copy, table.init, table.copy
		r.u32()
		r.u32()
	default:
		r.fail("instruction 0xfc %d", op)
	}
}

// vector reads the rest of an instruction that begins with 0xfd.
func (r *reader) vector() {
	switch op := r.u32(); {
	case op <= 11, op == 92, op == 93: // loads and stores
		r.u32()
		r.u32()
	case op == 12, op == 13: // v128.const, i8x16.shuffle
		r.take(16)
	case 21 <= op && op <= 34: // lanes
		r.byte()
	case 84 <= op && op <= 91: // loads and stores of lanes
		r.u32()
		r.u32()
		r.byte()
	case op > 255:
		r.fail("instruction 0xfd %d", op)
	}
}
