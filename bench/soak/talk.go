package soak

// Messages of a conversation are small, and now and then one is larger than a segment.
const (
	smallMessage = 300
	largeMessage = 9000
	// mostTurns bounds the turns of a conversation, and fewestTurns those of one that no small buffer ends before; turnMessages is how many messages
	// one end sends at most until it waits for as many of the other's.
	fewestTurns, mostTurns = 20, 1000
	turnMessages           = 8
)

// conversation draws messages in place of steps: some of one end, and as many of the other once these have come.
func (d *drawing) conversation() {
	from := d.either()
	for range int(d.between(fewestTurns, mostTurns)) {
		n := 1 + d.IntN(turnMessages)
		d.turn(from, n)
		d.turn(from.other(), n)
	}
}

// turn draws n messages of an end, which wait for all of the other end's so far.
func (d *drawing) turn(from role, n int) {
	p := &d.plan.parts[from]
	await := d.plan.parts[from.other()].total
	for range n {
		size := int64(d.IntN(smallMessage))
		if size == 0 {
			size = largeMessage
		}
		if size = min(size, d.left[from]); size == 0 {
			return
		}
		p.sends = append(p.sends, send{n: size, piece: int(size), await: await})
		p.total += size
		d.left[from] -= size
	}
}

// arrived returns how many of the part's sends have come whole, where so many of its bytes have come.
func (p *part) arrived(received int64) (n int64) {
	for _, s := range p.sends {
		if received -= s.n; received < 0 {
			break
		}
		if s.n > 0 {
			n++
		}
	}
	return n
}
