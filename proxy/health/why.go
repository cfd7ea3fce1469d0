package health

// why returns why the last transition was.
func (d *damper) why() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flap == nil {
		return ""
	}
	return d.flap.last.Cause
}

// Why returns why the endpoint is ejected, "" if it is not.
func (m *Member) Why() string {
	m.outlier.mu.Lock() // under which it is told of
	defer m.outlier.mu.Unlock()
	if !m.out.Load() {
		return ""
	}
	return m.damper.why()
}

// Why returns why the Breaker is in its state, unless that is closed, and until when it is
// open, if it is; 0 otherwise.
func (b *Breaker) Why() (cause string, until int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.State()
	if state == Closed {
		return "", 0
	}
	if state == Open {
		until = b.until
	}
	return b.damper.why(), until
}
