package server_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// A modelLine is an endpoint in the file of the model.
type modelLine struct {
	weight int
	state  string
}

// A modelHand is the changes by hand of an endpoint in the model, each with the line that it stands on.
type modelHand struct {
	added, removed  bool
	weight          int // -1: none
	state           string
	onWeight        int
	onState, onLine string
}

// A handModel is what endpoints there are to be, after changes by hand, reloads and restarts.
type handModel struct {
	file map[string]modelLine
	hand map[string]modelHand
}

func (m *handModel) of(name string) modelHand {
	if h, ok := m.hand[name]; ok {
		return h
	}
	return modelHand{weight: -1}
}

func lineText(l modelLine) string { return fmt.Sprint(l) }

// reload has the file be another one: changes whose line differs end.
func (m *handModel) reload(file map[string]modelLine) {
	m.file = file
	for name, h := range m.hand {
		line, there := file[name]
		if h.added == there { // an added one is in the file now, or one of the file is not
			delete(m.hand, name)
			continue
		}
		if there && line.weight != h.onWeight {
			h.weight = -1
		}
		if there && line.state != h.onState {
			h.state = ""
		}
		if there && lineText(line) != h.onLine {
			h.removed = false
		}
		m.put(name, h)
	}
}

// put keeps the changes of an endpoint, if there are any.
func (m *handModel) put(name string, h modelHand) {
	delete(m.hand, name)
	if h.added || h.removed || h.weight >= 0 || h.state != "" {
		m.hand[name] = h
	}
}

// change makes a change by hand, and reports whether it is possible.
func (m *handModel) change(what admin.EndpointVerb, name string, weight int) bool {
	line, there := m.file[name]
	h := m.of(name)
	present := (there || h.added) && !h.removed
	if h.added {
		line = modelLine{1, config.Ready} // as it was added
	}
	switch {
	case what == admin.EndpointAdd && h.removed, what == admin.EndpointReady && h.removed:
		h.removed = false
		if line.state != config.Ready {
			h.state, h.onState = config.Ready, line.state
		}
	case what == admin.EndpointAdd && !present:
		h = modelHand{added: true, weight: -1}
	case what == admin.EndpointRemove && h.removed:
		return true
	case what == admin.EndpointAdd, !present:
		return false
	case what == admin.EndpointRemove:
		if !there {
			h.weight = -1
		}
		h = modelHand{weight: h.weight, onWeight: h.onWeight, removed: there, onLine: lineText(line)}
	case what == admin.EndpointWeight:
		if h.weight, h.onWeight = weight, line.weight; weight == line.weight {
			h.weight = -1
		}
	default:
		if h.state, h.onState = string(what), line.state; h.state == line.state {
			h.state = ""
		}
	}
	if h.weight < 0 {
		h.onWeight = 0
	}
	m.put(name, h)
	return true
}

// words returns the endpoints that there are to be, in words.
func (m *handModel) words() string {
	var list []string
	all := maps.Clone(m.file)
	for name, h := range m.hand {
		if h.added {
			all[name] = modelLine{1, config.Ready}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e, h := all[name], m.of(name)
		if h.removed {
			continue
		}
		if h.weight >= 0 {
			e.weight = h.weight
		}
		if h.state != "" {
			e.state = h.state
		}
		list = append(list, fmt.Sprintf("%s %s %d", name, e.state, e.weight))
	}
	return strings.Join(list, ", ")
}

// endpointWords returns the endpoints that there are, in the words of the model.
func endpointWords(r *rig) string {
	var list []string
	for _, e := range r.Status().Upstreams[0].Endpoints {
		state := map[admin.State]string{admin.Up: config.Ready, admin.Draining: config.Drain, admin.Maint: config.Maint}[e.State]
		if e.State != admin.Removed {
			list = append(list, fmt.Sprintf("%s %s %d", e.Name, state, e.Weight))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func modelText(file map[string]modelLine) string {
	list := []string{`{address: "127.0.0.1:9", name: zz}`}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		list = append(list, fmt.Sprintf("{address: %q, name: %s, weight: %d, state: %s}", modelAddress(name), name, file[name].weight, file[name].state))
	}
	return fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, health_check: off, endpoints: [%s]}]", strings.Join(list, ", "))
}

func modelAddress(name string) string { return fmt.Sprintf("127.0.0.1:%d", 10+int(name[0]-'a')) }

// TestChangesByHandAgainstAModel: after any changes by hand, reloads and restarts, the endpoints are those
// of a simple model.
func TestChangesByHandAgainstAModel(t *testing.T) {
	t.Parallel()

	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	line := rapid.Custom(func(t *rapid.T) modelLine {
		return modelLine{rapid.IntRange(1, 3).Draw(t, "weight"), rapid.SampledFrom([]string{config.Ready, config.Ready, config.Drain}).Draw(t, "state")}
	})
	files := rapid.MapOf(names, line)
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(t.TempDir(), "state")
		m := &handModel{file: files.Draw(rt, "file"), hand: make(map[string]modelHand)}
		r := startAt(t, path, modelText(m.file))
		defer func() {
			if err := r.End(); err != nil {
				rt.Fatal(err)
			}
			r.store.Close()
		}()
		check := func(rt *rapid.T) {
			want := m.words()
			if got := strings.TrimSuffix(strings.TrimSuffix(endpointWords(r.rig), "zz ready 1"), ", "); got != want {
				rt.Fatalf("the endpoints are %s, want %s; by hand %q", got, want, r.live())
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": check,
			"change": func(rt *rapid.T) {
				what := rapid.SampledFrom([]admin.EndpointVerb{"add", "remove", "drain", "maint", "ready", "weight", "weight"}).Draw(rt, "what")
				name, weight := names.Draw(rt, "name"), rapid.IntRange(1, 3).Draw(rt, "weight")
				c := &admin.EndpointChange{What: what, Upstream: "u", Endpoint: name, Weight: weight}
				if what == admin.EndpointAdd {
					c.Endpoint, c.Name, c.Weight = modelAddress(name), name, 1
				}
				possible := m.change(what, name, weight)
				if _, err := r.ChangeEndpoint(c, "t"); (err == nil) != possible {
					rt.Fatalf("%+v: %v, want it possible %v", c, err, possible)
				}
			},
			"reload": func(rt *rapid.T) {
				file := maps.Clone(m.file)
				if rapid.Bool().Draw(rt, "all") {
					file = files.Draw(rt, "file")
				} else if len(file) > 0 {
					file[rapid.SampledFrom(slices.Sorted(maps.Keys(file))).Draw(rt, "name")] = line.Draw(rt, "line")
				}
				m.reload(file)
				r.Reload(modelText(file))
			},
			"restart": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "rarely") > 0 {
					rt.Skip("it takes longest")
				}
				m.reload(m.file)
				r = r.restart(t, path, modelText(m.file))
			},
		})
	})
}
