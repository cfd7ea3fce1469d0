package lane_test

import "time"

// An owner makes a gap for a flow. The source, b, is shut: it sends no more than it has begun to. The owner relays on, and arms the session
// when it holds nothing. Once all has arrived it opens the source, whose next packet takes the session.
func ExampleSession_Shut() {
	makeGap := func(p *poster, after func(time.Duration, func()), holds func() bool, acknowledged func(fd int) bool) {
		if !p.session.Shut(false, true) {
			return // it has left, or has ended
		}
		began := time.Now()
		var look func()
		look = func() {
			if !p.session.Disarm() { // it has left by itself: its windows are those of its endpoints
				_ = p.session.Open(p.a, p.b)
				_ = p.session.Leave(p.a, p.b)
				return
			}
			armed := !holds() && p.session.Arm() // else readable arms it
			late := time.Since(began) > 2*time.Second
			if !late && !(armed && acknowledged(p.a) && acknowledged(p.b)) { // SIOCOUTQ of each is 0: see tcp(7)
				after(time.Millisecond, look)
				return
			}
			_ = p.session.Open(p.a, p.b) // an error: b sees its window by a probe of its own
		}
		look()
	}
	_ = makeGap
}
