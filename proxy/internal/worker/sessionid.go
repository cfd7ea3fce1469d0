package worker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An ID names a client of a list. A client keeps it until it is joined, and its session until its
// end; no other one of the process ever has it. It is comparable.
type ID struct {
	Loop  int   // of the loop; negative: it is on goroutines, or adopted
	Place int64 // on the loop, or its number among those on goroutines, or in the table of the lane
	Began int64 // [Session.Began]; of an adopted one by the monotonic clock
}

// The Loops of IDs of clients that are on no loop.
const (
	onGoroutines = -1
	ofAdopted    = -2
)

// AdoptedID returns the ID of a session of the lane that a process before this one had, by its [lane.Session.Identity]: it is the same in each process that adopts the session.
func AdoptedID(number uint32, begun time.Duration) ID {
	return ID{ofAdopted, int64(number), int64(begun)}
}

// Adopted reports whether it is one of [AdoptedID].
func (id ID) Adopted() bool { return id.Loop == ofAdopted }

// idBase is the base of the numbers of an ID as text.
const idBase = 36

// String returns it as [ParseID] takes it: 0.2v.5f3k2m9x1, g.2v.5f3k2m9x1 of one on goroutines, or a.2v.5f3k2m9x1 of an adopted one.
func (id ID) String() string {
	loop := "g"
	switch {
	case id.Adopted():
		loop = "a"
	case id.Loop >= 0:
		loop = strconv.Itoa(id.Loop)
	}
	return loop + "." + strconv.FormatInt(id.Place, idBase) + "." + strconv.FormatInt(id.Began, idBase)
}

// ErrID is wrapped by the error of [ParseID].
var ErrID = errors.New("not the id of a session")

// ParseID reads the text of an ID. It need not be that of any client.
func ParseID(text string) (id ID, err error) {
	parts := strings.Split(text, ".")
	if len(parts) == 3 {
		switch parts[0] {
		case "g":
			id.Loop = onGoroutines
		case "a":
			id.Loop = ofAdopted
		default:
			var loop uint64
			loop, err = strconv.ParseUint(parts[0], 10, 16)
			id.Loop = int(loop)
		}
		var errs [2]error
		id.Place, errs[0] = strconv.ParseInt(parts[1], idBase, 64)
		id.Began, errs[1] = strconv.ParseInt(parts[2], idBase, 64)
		err = errors.Join(err, errs[0], errs[1])
	}
	if len(parts) != 3 || err != nil || id.Place < 0 || id.String() != text {
		return ID{}, fmt.Errorf("%q: %w: write one that penstock sessions lists, such as 0.2v.5f3k2m9x1", text, ErrID)
	}
	return id, nil
}
