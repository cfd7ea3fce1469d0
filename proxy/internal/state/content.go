package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// version is the version of the format.
const version = 1

// ErrVersion is wrapped by the error of a file with an unknown version.
var ErrVersion = errors.New("the file has another version")

// content is the content of a file. Unknown keys and kinds are kept, so that a version of the program that does not know
// them does not drop them.
type content struct {
	changes []Change
	denials []Denial
	lines   map[Denial][]byte // the text of each denial that was last written
	other   map[string]json.RawMessage
	strange []json.RawMessage // changes of unknown kinds
}

func decode(data []byte) (*content, error) {
	c := &content{}
	if err := json.Unmarshal(data, &c.other); err != nil {
		return nil, err
	}
	var v int
	if err := json.Unmarshal(c.other["version"], &v); err != nil {
		return nil, fmt.Errorf("version: %w", err)
	}
	if v != version {
		return nil, fmt.Errorf("%w: %d instead of %d", ErrVersion, v, version)
	}
	if list, ok := c.other["denials"]; ok {
		if err := json.Unmarshal(list, &c.denials); err != nil {
			return nil, fmt.Errorf("denials: %w", err)
		}
	}
	if err := c.decodeChanges(c.other["changes"]); err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	for _, key := range []string{"version", "changes", "denials"} {
		delete(c.other, key)
	}
	return c, nil
}

// beginning is the beginning of every file that encode writes, without spaces: keys are sorted.
const beginning = `{"changes":[`

// recognised reports whether a store has written data that decode refuses: a torn file has our beginning or a part of it; a
// whole file has a version and changes.
func recognised(data []byte) bool {
	var whole struct {
		Version *int
		Changes json.RawMessage
	}
	if json.Unmarshal(data, &whole) == nil && whole.Version != nil && whole.Changes != nil {
		return true
	}
	begin := make([]byte, 0, len(beginning))
	for _, b := range data {
		if len(begin) == len(beginning) {
			break
		}
		if b != ' ' && b != '\n' {
			begin = append(begin, b)
		}
	}
	return bytes.HasPrefix([]byte(beginning), begin)
}

func (c *content) decodeChanges(data json.RawMessage) error {
	if len(data) == 0 { // encode writes an empty list
		return errors.New("the list is missing")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, raw := range list {
		var one Change
		var kind struct{ Kind Kind }
		if err := json.Unmarshal(raw, &kind); err != nil {
			return err
		}
		if !kind.Kind.known() {
			c.strange = append(c.strange, raw)
			continue
		}
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		if one.Kind == EndpointAdded && one.Added == nil {
			return fmt.Errorf("%v: it has no endpoint", &one)
		}
		c.changes = append(c.changes, one)
	}
	return nil
}

func (k Kind) known() bool {
	switch k {
	case EndpointAdded, EndpointRemoved, EndpointState, EndpointWeight, ListenerDrained, Split:
		return true
	}
	return false
}

// encode writes a file. Denials come last, each on its own line: there may be thousands, and changing a
// denial leaves the other lines unchanged.
func (c *content) encode() ([]byte, error) {
	all := make(map[string]any, len(c.other)+2)
	for key, value := range c.other {
		all[key] = value
	}
	list := make([]any, 0, len(c.changes)+len(c.strange))
	for i := range c.changes {
		list = append(list, &c.changes[i])
	}
	for _, raw := range c.strange {
		list = append(list, raw)
	}
	all["version"], all["changes"] = version, list
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(all); err != nil || len(c.denials) == 0 {
		c.lines = nil
		return b.Bytes(), err
	}
	b.Truncate(b.Len() - len("\n}\n"))
	b.WriteString(",\n  \"denials\": [")
	err := c.encodeDenials(&b)
	b.WriteString("\n  ]\n}\n")
	return b.Bytes(), err
}

func (c *content) encodeDenials(b *bytes.Buffer) error {
	lines := make(map[Denial][]byte, len(c.denials))
	b.Grow(len(c.denials) * denialSize)
	for i := range c.denials {
		d := &c.denials[i]
		line, ok := c.lines[*d]
		if !ok {
			var err error
			if line, err = json.Marshal(d); err != nil {
				return err
			}
		}
		lines[*d] = line
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(line)
	}
	c.lines = lines
	return nil
}

// denialSize is the approximate size of a denial in a file, in bytes.
const denialSize = 200
