package relay

import "errors"

// The two links of a session on a loop are the session itself, seen from either
// side: they take no memory.
type (
	aToB Driven // from a to b
	bToA Driven // from b to a
)

var errNoTransfer = errors.New("no transfer between sockets")

func (s *aToB) environment() *environment                { return &s.drv.env }
func (s *aToB) recv(p []byte) (int, error)               { return s.ab.recvMarked(&s.a, p) }
func (s *aToB) fill(c splicePipe, max int) (int, error)  { return s.a.fill(c, max) }
func (s *aToB) peek(err error) (int, error)              { return s.a.peek(err) }
func (s *aToB) send(p []byte) (int, error)               { return s.ab.sendMarked(&s.b, p) }
func (s *aToB) drain(c splicePipe, max int) (int, error) { return s.b.drain(c, max) }
func (s *aToB) closeWrite() error                        { return s.b.closeWrite() }
func (s *aToB) raiseMark(n int) bool                     { return s.a.raiseMark(n) }
func (s *aToB) lowerMark()                               { s.a.lowerMark() }
func (s *aToB) aborted() bool                            { return s.a.aborted() }
func (s *aToB) queued() int                              { return s.a.queued() }
func (s *aToB) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }

func (s *bToA) environment() *environment                { return &s.drv.env }
func (s *bToA) recv(p []byte) (int, error)               { return s.ba.recvMarked(&s.b, p) }
func (s *bToA) fill(c splicePipe, max int) (int, error)  { return s.b.fill(c, max) }
func (s *bToA) peek(err error) (int, error)              { return s.b.peek(err) }
func (s *bToA) send(p []byte) (int, error)               { return s.ba.sendMarked(&s.a, p) }
func (s *bToA) drain(c splicePipe, max int) (int, error) { return s.a.drain(c, max) }
func (s *bToA) closeWrite() error                        { return s.a.closeWrite() }
func (s *bToA) raiseMark(n int) bool                     { return s.b.raiseMark(n) }
func (s *bToA) lowerMark()                               { s.b.lowerMark() }
func (s *bToA) aborted() bool                            { return s.b.aborted() }
func (s *bToA) queued() int                              { return s.b.queued() }
func (s *bToA) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }

// sessionOf returns the session that a direction is of.
func sessionOf(d *direction) *Driven {
	switch l := d.link.(type) {
	case *aToB:
		return (*Driven)(l)
	case *bToA:
		return (*Driven)(l)
	}
	return d.link.(*layeredLink).of
}
