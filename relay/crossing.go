package relay

import "errors"

// The two links of a session on a loop are the session itself, seen from either
// side: they take no memory.
type (
	forth Driven // from a to b
	back  Driven // from b to a
)

var errNoTransfer = errors.New("no transfer between sockets")

func (s *forth) environment() *environment                { return &s.drv.env }
func (s *forth) recv(p []byte) (int, error)               { return s.a.recv(p) }
func (s *forth) fill(c splicePipe, max int) (int, error)  { return s.a.fill(c, max) }
func (s *forth) peek(err error) (int, error)              { return s.a.peek(err) }
func (s *forth) send(p []byte) (int, error)               { return s.b.send(p) }
func (s *forth) drain(c splicePipe, max int) (int, error) { return s.b.drain(c, max) }
func (s *forth) closeWrite() error                        { return s.b.closeWrite() }
func (s *forth) raiseMark(n int) bool                     { return s.a.raiseMark(n) }
func (s *forth) lowerMark()                               { s.a.lowerMark() }
func (s *forth) aborted() bool                            { return s.a.aborted() }
func (s *forth) queued() int                              { return s.a.queued() }
func (s *forth) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }

func (s *back) environment() *environment                { return &s.drv.env }
func (s *back) recv(p []byte) (int, error)               { return s.b.recv(p) }
func (s *back) fill(c splicePipe, max int) (int, error)  { return s.b.fill(c, max) }
func (s *back) peek(err error) (int, error)              { return s.b.peek(err) }
func (s *back) send(p []byte) (int, error)               { return s.a.send(p) }
func (s *back) drain(c splicePipe, max int) (int, error) { return s.a.drain(c, max) }
func (s *back) closeWrite() error                        { return s.a.closeWrite() }
func (s *back) raiseMark(n int) bool                     { return s.b.raiseMark(n) }
func (s *back) lowerMark()                               { s.b.lowerMark() }
func (s *back) aborted() bool                            { return s.b.aborted() }
func (s *back) queued() int                              { return s.b.queued() }
func (s *back) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }
