package relay

// The moves of a direction. Each makes one attempt at moving bytes and returns
// waitTurn when another move may follow.

// fillBuffer reads once into the buffer.
func (d *direction) fillBuffer() wait {
	d.releasePipe()
	size := bufferSize
	if d.is(waits) {
		size = d.link.(*pair).readSize()
		if d.held.buf != nil && len(d.held.buf.b) != size {
			d.releaseBuffer()
		}
	}
	if d.held.buf == nil {
		buf, err := d.env().buffer(size)
		if err != nil {
			return d.fail("lease buffer for", sideSource, err)
		}
		d.held.buf = buf
	}
	n, err := d.link.recv(d.held.buf.b[:d.clip(len(d.held.buf.b))])
	switch {
	case n > 0:
		d.held.off, d.held.end = 0, n
		d.set(stalled, false)
		d.consumed(n)
		d.heard(d.held.buf.b[:n])
		d.adapt(n)
		if d.pace == resting { // rest before the bytes read go on
			return waitTokens
		}
		return waitTurn
	case err == nil:
		return d.sourceEnd()
	}
	return d.sourceError("read", err)
}

// fillPipe splices once from the source into a leased, empty pipe, or copies if no pipe is available.
func (d *direction) fillPipe() wait {
	if d.hears() {
		return d.fillBuffer()
	}
	if d.held.pipe != nil && d.held.pipe.Size() < d.pipeSize.bytes() {
		d.releasePipe()
	}
	if d.held.pipe == nil && !d.leasePipe() {
		return d.fillBuffer()
	}
	d.releaseBuffer()
	most := d.clip(d.held.pipe.Size())
	n, err := d.link.fill(d.held.pipe, most)
	switch {
	case n > 0:
		d.set(stalled, false)
		d.consumed(n)
		if most == d.held.pipe.Size() {
			d.grow(n)
		}
		d.adapt(n)
		return waitTurn
	case err == nil, wouldBlock(err):
		return d.filledNothing(err)
	case refused(err):
		d.releasePipe()
		return d.copyFromHere(FallbackRefused)
	}
	return d.sourceError("splice", err)
}

// filledNothing decides what a splice of 0 bytes, or an EAGAIN, means. Neither is proof:
// tcp_splice_read stops at an urgent mark with data queued behind it (net/ipv4/tcp.c,
// tcp_read_sock), and a socket in a sockmap answers 0. A peek decides. If it shows bytes, they
// may have arrived only now, so splice gets one more try before they are moved by recv.
func (d *direction) filledNothing(err error) wait {
	n, err := d.link.peek(err)
	switch {
	case n > 0 && d.is(stalled):
		d.fallback(FallbackUrgent)
		return d.fillBuffer()
	case n > 0:
		d.set(stalled, true)
		return waitTurn
	case err == nil:
		return d.sourceEnd()
	}
	return d.sourceError("read", err)
}

// transfer moves bytes from a regular file to the sink in one call. It confirms a first answer of 0 by a read,
// because sendfile and copy_file_range return 0 for files of /proc and the like that have bytes
// (copy_file_range(2), BUGS).
func (d *direction) transfer() wait {
	n, op, err := d.link.transfer(d.clip(transferBytes))
	switch {
	case n > 0:
		d.consumed(n)
		d.spliced.Add(int64(n))
		return waitTurn
	case err == nil && d.moves > 0:
		return d.sourceEnd()
	case err == nil:
		d.mode = copying
		return waitTurn
	case refused(err):
		return d.copyFromHere(FallbackRefused)
	case wouldBlock(err):
		return waitSink
	}
	return d.sinkError(op, err)
}

// transferBytes bounds one transfer, so that counters and deadlines keep up with
// a fast sink.
const transferBytes = 4 << 20

func (d *direction) deliverAhead() wait {
	o := d.rareState()
	b := o.ahead
	if o.gate != nil {
		b = b[:min(int64(len(b)), o.remain)]
	}
	n, err := d.link.send(b)
	if n > 0 {
		if o.gate != nil {
			o.remain -= int64(n)
		}
		d.copied.Add(int64(n))
		if m := d.observer(); m != nil {
			m.answered(o.ahead[:n])
		}
		if o.ahead = o.ahead[n:]; len(o.ahead) == 0 {
			o.ahead = nil // it may have kept a large buffer in use
		}
	}
	return d.delivered(n, "write", err)
}

func (d *direction) deliverBuffer() wait {
	n, err := d.link.send(d.held.buf.b[d.held.off:d.held.end])
	if n > 0 {
		d.copied.Add(int64(n))
		if d.state&(mirrored|observed) != 0 {
			d.show(d.held.buf.b[d.held.off : d.held.off+n])
		}
		d.held.off += n
	}
	return d.delivered(n, "write", err)
}

func (d *direction) deliverPipe() wait {
	most := d.held.pipe.Len()
	if d.is(mirrored) {
		most = d.offer(most)
	}
	if d.is(noDrain) {
		return d.unpipe(most)
	}
	n, err := d.link.drain(d.held.pipe, most)
	if n > 0 {
		d.spliced.Add(int64(n))
		d.passed(n)
	} else if err != nil && refused(err) {
		d.set(noDrain, true)
		return d.copyFromHere(FallbackRefused)
	}
	return d.delivered(n, "splice", err)
}

// delivered decides the step after a write that moved n bytes. A write that moves nothing without an error
// counts as a full sink, because it would spin otherwise.
func (d *direction) delivered(n int, op string, err error) wait {
	switch {
	case err != nil:
		return d.sinkError(op, err)
	case n <= 0:
		return waitSink
	}
	d.moves++
	if (d.is(blocked) || d.is(waits)) && d.env().active != nil {
		d.env().active(d, waitSink)
	}
	d.set(blocked, false)
	return waitTurn
}

// unpipe moves up to most bytes of the residue from the pipe into a buffer, for a sink that refuses to splice.
func (d *direction) unpipe(most int) wait {
	if d.held.buf == nil {
		buf, err := d.env().buffer(bufferSize)
		if err != nil {
			return d.fail("lease buffer for", sideSink, err)
		}
		d.held.buf = buf
	}
	n, err := d.held.pipe.Read(d.held.buf.b[:min(len(d.held.buf.b), most)])
	if n <= 0 {
		return d.sinkError("read pipe for", err)
	}
	d.held.off, d.held.end = 0, n
	if m := d.mirror(); m != nil {
		m.piped += n
		d.passed(n)
	}
	return waitTurn
}

// adapt notes the size of a read, and chooses the engine of the next one. The streaks, and the gap between the
// two thresholds, are the hysteresis.
func (d *direction) adapt(n int) {
	if d.is(pinned) {
		return
	}
	if d.sparse() { // the rate decides the size of reads
		n += d.link.queued()
	}
	tune := d.env().tune
	spoke, reads, next, what := n >= tune.promote.bytes, tune.promote.reads, splicing, promoted
	if d.mode == splicing {
		spoke, reads, next, what = n < tune.demote.bytes, tune.demote.reads, copying, demoted
	}
	if !spoke {
		d.streak = 0
		return
	}
	if d.streak++; int(d.streak) >= reads {
		d.streak = 0
		d.switchTo(next)
		d.env().counts.note(what)
	}
}
