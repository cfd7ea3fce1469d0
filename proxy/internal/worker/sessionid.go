package worker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An ID names a client of a list. A client keeps it until it is joined, and its session until its
// end; no other one of the process ever has it. It is comparable.
type ID struct {
	Loop  int   // of the loop; negative: it is on goroutines
	Place int64 // on the loop, or its number among those on goroutines
	Began int64 // [Session.Began]
}

// onGoroutines is the Loop of IDs of clients on goroutines.
const onGoroutines = -1

// idBase is the base of the numbers of an ID as text.
const idBase = 36

// String returns it as [ParseID] takes it: 0.2v.5f3k2m9x1, or g.2v.5f3k2m9x1 of one on goroutines.
func (id ID) String() string {
	loop := "g"
	if id.Loop >= 0 {
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
		if parts[0] == "g" {
			id.Loop = onGoroutines
		} else {
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
