package proxy

import (
	"context"
	"iter"
	"time"

	"github.com/penstock/penstock/proxy/core"
)

// Session is what is known of a client, see [core.Session].
type Session = core.Session

// Sessions yields the clients that are being served, each one at most once: those that
// are there from the beginning to the end of the listing, and of those that come or leave
// meanwhile some. Clients that wait for a place under the limit are not served yet. It
// ends when ctx does, or Serve. It takes a few at a time from where they are served, which
// goes on meanwhile, so yield may take its time; between two of them anything may
// happen. It may be called at any time by any goroutine, several at a time.
func (s *Server) Sessions(ctx context.Context) iter.Seq[Session] { return s.driver.list(ctx) }

// listMost is how many clients are listed while the book is closed to others.
const listMost = 64

// list lists clients. A mark in the ring is where it goes on.
func (b *sessions) list(ctx context.Context) iter.Seq[core.Session] {
	return func(yield func(core.Session) bool) {
		mark, last := b.beginList()
		defer b.endList(mark)
		batch := make([]core.Session, 0, listMost)
		for more := true; more; {
			batch, more = b.listSome(mark, last, batch[:0])
			for _, s := range batch {
				if ctx.Err() != nil || !yield(s) {
					return
				}
			}
		}
	}
}

// beginList returns a mark before all clients, and the number of the last of them: those
// that come later are told of by others, so that it ends.
func (b *sessions) beginList() (mark *served, last uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mark = new(served)
	mark.join(b.ring())
	return mark, b.came
}

func (b *sessions) endList(mark *served) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mark.leave()
}

// listSome appends the next ones to batch, and moves the mark behind them.
func (b *sessions) listSome(mark *served, last uint64, batch []core.Session) (_ []core.Session, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := mark.next
	for ; len(batch) < listMost; at = at.next {
		if at == &b.now || at.number > last {
			return batch, false
		}
		if at.client != nil {
			batch = append(batch, at.describe())
		}
	}
	mark.leave()
	mark.join(at.prev)
	return batch, true
}

// describe says what is known of a client. The book's mu is held.
func (s *served) describe() core.Session {
	d := core.Session{Client: address(s.client.RemoteAddr()), Loop: -1, Idle: -1}
	if s.session == nil {
		d.State, d.Age = core.Dialing, time.Since(s.accepted)
		return d
	}
	d.Endpoint = address(s.endpoint.RemoteAddr())
	d.Told(s.session.Result())
	if idle, known := s.session.Idle(); known {
		d.Idle = idle
	}
	return d
}
