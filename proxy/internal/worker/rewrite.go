package worker

import "github.com/penstock/penstock/relay"

// A Rewriting is a [Search] whose sessions may have the bytes of one side rewritten.
type Rewriting interface {
	// Rewritten says of which side, after [Search.Next] has had an endpoint connected to; SideNone: of neither.
	Rewritten() relay.Side
	// Rewrite gives the socket of that side the state of a session that begins. It is called after [Search.Reached], if
	// Rewritten is not SideNone.
	Rewrite(s *relay.Socket)
}

// rewritesClient reports whether the bytes of clients are rewritten, so that none go to the endpoint before the session.
func rewritesClient(s Search) bool {
	by, ok := s.(Rewriting)
	return ok && by.Rewritten() == relay.SideA
}

// rewrite has the bytes of a or b, the client's and the endpoint's socket, rewritten. Sessions of which neither are do not
// come here: it allocates.
func rewrite(by Rewriting, a, b relay.Socket) (relay.Socket, relay.Socket) {
	if by.Rewritten() == relay.SideB {
		by.Rewrite(&b)
	} else {
		by.Rewrite(&a)
	}
	return a, b
}
