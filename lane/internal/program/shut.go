package program

// ShutSides has the endpoint of one side see a window of 0 from the next packet on, in all that its socket sends, or those of both be promised
// nothing more, and those of other sides see the windows of the sockets.
func (s *Session) ShutSides(sides [2]bool) {
	bits := uint8(0)
	for i, is := range sides {
		if is {
			bits |= 1 << i
		}
	}
	s.Shut = 0
	s.Held = [2]uint32{}
	s.Shut = bits
}

// IsShut reports whether the endpoint of a side is shut.
func (s *Session) IsShut(side int) bool { return s.Shut&(1<<side) != 0 }

// Announce calls probe, which has a side's socket send a probe: that announces its window.
func (s *Session) Announce(side int, probe func() error) error {
	s.Opens = 1 << side
	defer func() { s.Opens = 0 }()
	return probe()
}
