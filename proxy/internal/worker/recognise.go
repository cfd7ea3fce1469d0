package worker

// recognise looks at a client's first bytes until they decide its route. It may be decided
// without any.
func (w *worker) recognise(c *pendingClient) {
	p := &c.serving.service.Preread
	need, err := p.First.Look(&c.client, nil)
	switch {
	case err != nil:
		w.refuse(c, err)
	case need == 0:
		w.recognised(c)
	case p.Silence > 0 && p.Silence < p.Wait():
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Silence)
		w.expect(c, awaitSilence)
	default:
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait())
		w.expect(c, awaitFirst)
	}
}

// recognised goes on when a client's route is decided.
func (w *worker) recognised(c *pendingClient) {
	p, first := &c.serving.service.Preread, &c.client.First
	c.client.Hello = first.Hello
	if p.Data && first.Seen() == 0 && !first.Silent {
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait())
		w.expect(c, awaitData)
		return
	}
	w.prereadRead(c)
}

// silenceOver goes on when the time is over after which a client that has said nothing may have
// a route for that. If there is none, or it has said something, its bytes are waited for.
func (w *worker) silenceOver(c *pendingClient) {
	p := &c.serving.service.Preread
	c.phase = awaitFirst
	if c.events&arrived == 0 && c.buffered == nil && p.First.Silent(&c.client) {
		w.recognised(c)
		return
	}
	w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait()-p.Silence)
}
