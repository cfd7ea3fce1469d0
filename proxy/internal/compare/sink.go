package compare

// A sink takes the answers of one side of a flow from a parser, and hands them on with masks
// applied. A unit is a part of an answer that patterns are applied to by itself, such as a line or a message.
type sink struct {
	s      *Session
	f      *flow
	side   int
	open   bool   // an answer has begun
	hidden bool   // all of the answer is masked
	name   string // of the answer
	shape  uint64 // sum of the lengths of the answer's units
	length uint64 // of the unit, masked
	window window
}

func newSink(s *Session, f *flow, side int) sink { return sink{s: s, f: f, side: side} }

// begin is the begin of an answer to the request of that name.
func (o *sink) begin(n name) {
	text := o.s.report.text(n)
	o.open, o.name, o.shape, o.length = true, text, 0, 0
	o.hidden = o.s.plan.masks.hidden(text)
	o.window.begin(o.s.plan.masks.pattern(text))
	o.s.spend(answerCost)
	o.f.begin(o.side, n, o.hidden)
}

// put is bytes of the unit.
func (o *sink) put(b []byte) {
	if o.hidden || o.s.reason != Going || len(b) == 0 {
		return
	}
	if o.window.mask != nil {
		o.window.put(o, b)
		return
	}
	o.emit(b)
}

// mark is structure between units, which no pattern is applied to.
func (o *sink) mark(b []byte) {
	if o.s.reason == Going && !o.hidden && len(b) > 0 {
		o.s.spendBytes(dataCost, len(b), byteCost)
		o.f.data(o.side, b)
	}
}

func (o *sink) emit(b []byte) {
	if o.s.reason == Going && len(b) > 0 {
		o.length += uint64(len(b))
		o.s.spendBytes(dataCost, len(b), byteCost)
		o.f.data(o.side, b)
	}
}

// unit is the end of a unit.
func (o *sink) unit() {
	if o.hidden {
		return
	}
	o.s.spend(unitCost)
	o.window.flush(o)
	o.shape = (o.shape ^ o.length) * 0x9e3779b97f4a7c15
	o.length = 0
}

// end is the end of the answer.
func (o *sink) end() {
	o.unit()
	if o.s.reason == Going {
		o.f.end(o.side, o.shape, o.s.now)
	}
	o.open = false
}

// A stream has no frames: the whole of it is one answer.
type stream struct{ out sink }

func (p *stream) parse(b []byte) error {
	if !p.out.open {
		p.out.begin(p.out.s.report.name("stream"))
	}
	p.out.put(b)
	return nil
}

func (p *stream) eof() {
	if p.out.open {
		p.out.end()
	}
}
