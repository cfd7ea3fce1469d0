package wasm

// boundTables gives each table a maximum length.
func (p *parsed) boundTables() error {
	r := reader{b: p.sections[sectionTable]}
	if r.b == nil {
		return nil
	}
	var out []byte
	n := r.each(maxTables, func() {
		kind, flags, least, most := r.byte(), r.byte(), r.u32(), uint32(maxTable)
		switch flags {
		case 0:
		case 1:
			most = min(most, r.u32())
		default:
			r.fail("a table with limits of kind %#x", flags)
		}
		if least > maxTable {
			r.fail("a table has %d elements, more than %d", least, maxTable)
		}
		out = appendU32(appendU32(append(out, kind, 1), least), max(most, least))
	})
	p.sections[sectionTable] = append(appendU32(nil, n), out...)
	return r.err
}

// readGlobals counts the globals, and reads them to their ends.
func (p *parsed) readGlobals() error {
	r := reader{b: p.sections[sectionGlobal]}
	if r.b == nil {
		return nil
	}
	p.globals = r.each(maxGlobals, func() {
		r.take(2)
		p.constant(&r)
	})
	return r.err
}

// readElements reads the segments of elements, to bound the lengths of their vectors. The lowest bits of the flags say that
// a segment is passive or declarative, that it names its table, and that its elements are expressions.
func (p *parsed) readElements() error {
	r := reader{b: p.sections[sectionElement]}
	if r.b == nil {
		return nil
	}
	total := uint32(0)
	r.each(maxSegments, func() {
		flags := r.u32()
		if flags > 7 {
			r.fail("a segment of elements of kind %d", flags)
		}
		if flags&1 == 0 {
			if flags&2 != 0 {
				r.u32()
			}
			p.constant(&r)
		}
		if flags&3 != 0 {
			r.byte()
		}
		total += r.each(maxElements, func() {
			if flags&4 != 0 {
				p.constant(&r)
			} else {
				p.refers(&r, r.u32())
			}
		})
		if total > maxElements {
			r.fail("it has %d elements, more than %d", total, maxElements)
		}
	})
	return r.err
}

// readData reads the segments of data, to bound their number.
func (p *parsed) readData() error {
	r := reader{b: p.sections[sectionData]}
	if r.b == nil {
		return nil
	}
	r.each(maxSegments, func() {
		flags := r.u32()
		if flags > 2 {
			r.fail("a segment of data of kind %d", flags)
		}
		if flags == 2 {
			r.u32()
		}
		if flags != 1 {
			p.constant(&r)
		}
		r.take(r.u32())
	})
	return r.err
}

func (p *parsed) constant(r *reader) {
	for r.err == nil {
		switch op := r.byte(); op {
		case opEnd:
			return
		case opI32Const, 0x42, 0x43, 0x44, opGlobalGet, opRefFunc, 0xd0: // constants, global.get, ref.func, ref.null
			p.immediates(r, op)
		case 0xfd: // v128.const
			r.u32()
			r.take(16)
		default:
			r.fail("an initial value with instruction %#x", op)
		}
	}
}
