package state

// A Fate is the way that a packet takes.
type Fate uint8

// The fates.
const (
	// Pass: it goes on as if there were no lane.
	Pass Fate = iota
	// Note: its end is noted, then the state is read again, and it goes up.
	Note
	// Try: a packet with data claims the session; others are as with Note.
	Try
	// Spoil: it is noted, takes the claim away, and goes up.
	Spoil
	// Translate: it goes to the other connection.
	Translate
	// Drop: it is dropped.
	Drop
	// Confine: it is dropped, unless it only acknowledges.
	Confine
	// Disarm: it ends the session's being armed or claimed, and passes.
	Disarm
)

// Arriving returns the fate of a packet with data, FIN or RST that arrives from an endpoint.
// One that only acknowledges passes where others are noted.
func Arriving(s State) Fate {
	switch s {
	case User:
		return Note
	case Armed:
		return Try
	case Claimed:
		return Spoil
	case Lane, Done:
		return Translate
	case Held:
		return Drop
	}
	return Pass
}

// Leaving returns the fate of a packet that leaves a socket of the session. In state Armed
// only a FIN or RST disarms, and in state Claimed data too; an acknowledgement passes.
func Leaving(s State) Fate {
	switch s {
	case Armed, Claimed:
		return Disarm
	case Lane, Done:
		return Drop
	case Held:
		return Confine
	}
	return Pass
}
