//go:build !linux

package relay

func (p *loopSocket) inspect() Leg { return Leg{} }

func inspect(any) Leg { return Leg{} }
