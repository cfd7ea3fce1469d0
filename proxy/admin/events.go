package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
)

// chunk is how many bytes of an event are written at once; a client has writeTime for each.
const chunk = 64 << 10

// events handles GET /v1/events: first the event "state" with everything, then once a second the event "changes" with
// the rows that have changed. docs/api.md describes them.
func (s *Server) events(context.Context, *arguments) (any, error) {
	return http.HandlerFunc(s.stream), nil
}

// stream writes events until the client goes, does not read, or may not read any more, or the server leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	from, err := s.feed.join()
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer s.feed.leave(from)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	out := eventWriter{http.NewResponseController(w), w, admission.Of(r)}
	for {
		select {
		case event := <-from.events:
			if from := callerOf(r); from.permit(reads) != nil || out.write(event) != nil {
				return
			}
		case <-from.lost:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// An eventWriter writes events. The server waits for its client only while one is written.
type eventWriter struct {
	*http.ResponseController
	http.ResponseWriter
	conn *admission.Conn // nil: of a test
}

// write writes an event.
func (w eventWriter) write(event []byte) error {
	for len(event) > 0 {
		n := min(chunk, len(event))
		if err := w.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return err
		}
		if _, err := w.ResponseWriter.Write(event[:n]); err != nil {
			return err
		}
		if err := w.ResponseController.Flush(); err != nil {
			return err
		}
		w.conn.Resume()
		event = event[n:]
	}
	return nil
}
