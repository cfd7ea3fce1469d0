package health

// why returns the cause of the last transition.
func (d *damper) why() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flap == nil {
		return ""
	}
	return d.flap.last.Cause
}

// Why returns the cause of the endpoint's ejection, "" if it is not ejected.
func (m *OutlierMonitor) Why() string {
	m.outlier.mu.Lock() // held while transitions are noted
	defer m.outlier.mu.Unlock()
	if !m.ejected.Load() {
		return ""
	}
	return m.damper.why()
}

// Why returns the cause of the Breaker's state, unless that is closed. If it is open, until is
// the end of that state; otherwise 0.
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
