package completion_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/proxy/internal/completion"
)

type commands struct {
	Status struct {
		Config   *string `placeholder:"FILE" help:"The configuration. It says where."`
		Listener string  `help:"Only this one: and no other."`
		JSON     bool    `name:"json" help:"In JSON."`
		Secret   bool    `hidden:""`
	} `cmd:"" help:"Show the status."`
	Run struct {
		Engine string `enum:"auto,splice,copy" default:"auto" help:"How."`
		Batch  bool   `default:"true" negatable:"" help:"Batch."`
		Output string `short:"o" placeholder:"FILE"`
		Cgroup string `placeholder:"DIR"`
		Admin  string
		File   string `arg:"" optional:""`
	} `cmd:"" help:"Run it."`
	Endpoint struct {
		List struct {
			Upstream string `help:"Of this upstream."`
		} `cmd:"" default:"withargs" help:"List them."`
		Drain struct {
			Upstream string   `arg:"" help:"The upstream."`
			Endpoint []string `arg:"" help:"The endpoints."`
			For      string   `help:"How long."`
		} `cmd:"" help:"Drain endpoints."`
	} `cmd:"" help:"Endpoints."`
	Listener struct {
		List struct {
			Name string `arg:"" optional:""`
		} `cmd:"" default:"withargs"`
		Drain struct {
			Name string `arg:""`
		} `cmd:""`
	} `cmd:"" help:"Listeners."`
	Split struct {
		Listener string   `arg:""`
		Percent  []string `arg:"" names:"split"`
	} `cmd:"" help:"Split."`
	Deny struct {
		Source string `arg:"" names:"denial"`
		State  string `values:"open,half-open" help:"Its state."`
		Sort   string `enum:",age,idle" default:"" help:"The order."`
	} `cmd:"" help:"Deny."`
	Hidden struct{} `cmd:"" hidden:""`
}

// complete returns the answer for a line, without descriptions, on one line.
func complete(t *testing.T, line string) string {
	t.Helper()
	k, err := kong.New(new(commands), kong.Name("penstock"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(l *completion.Line, kind string) []string {
		switch kind {
		case "endpoint":
			of := l.Given("upstream")
			return []string{of + "-1", of + "-2", "$(reboot)", "a b", "[::1]:80", "'", "-rf;ls", "--all", "-x", ":files", ":words", "=files", ":1"}
		case "listener":
			return []string{"web", "mail", l.Given("config")}
		case "split":
			return []string{l.Given("listener") + "-a:", fmt.Sprint(len(l.Arguments()), ":")}
		case "denial":
			return []string{"10.0.0.0/8", "2001:db8::1", "unix:uid=1000", "=ls"}
		}
		return []string{"app", "shop"}
	}
	var out strings.Builder
	if err := completion.Parse(k.Model, strings.Split(line, " ")).Complete(&out, names); err != nil {
		t.Fatal(err)
	}
	var words []string
	for word := range strings.Lines(out.String()) {
		word, _, _ = strings.Cut(strings.TrimSuffix(word, "\n"), "\t")
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"":                                "status run endpoint listener split deny =words",
		"listener ":                       "list drain web mail =words",
		"listener drain m":                "mail =words",
		"s":                               "status split =words",
		"help r":                          "run =words",
		"x":                               "=words",
		"status -":                        "--help --config --listener --json =words",
		"status --json --l":               "--listener =words",
		"status --secret":                 "=words",
		"status ":                         "=words",
		"status --config ":                "=files",
		"status --config=":                "=files",
		"status --config=/e":              "=files",
		"status --config /f --listener ":  "web mail /f =words",
		"status --config=/f --listener=/": "--listener=/f =words",
		"status --json web --listener m":  "mail =words",
		"status --unknown=x":              "=words",
		"status --unknown --l":            "--listener =words",
		"run --engine ":                   "auto splice copy =words",
		"run --engine=s":                  "--engine=splice =words",
		"run --no":                        "--no-batch =words",
		"run --no-batch --engine c":       "copy =words",
		"run -o ":                         "=files",
		"run --cgroup ":                   "=directories",
		"run --admin ":                    "unix: =words",
		"run --admin unix:/r":             "=files",
		"run ":                            "=files",
		"run a b":                         "=words",
		"run -- --e":                      "=files",
		"endpoint ":                       "list drain =words",
		"endpoint -":                      "--help --upstream =words",
		"endpoint --upstream ":            "app shop =words",
		"endpoint drain ":                 "app shop =words",
		"endpoint drain s":                "shop =words",
		"endpoint drain app ":             "app-1 app-2 [::1]:80 =words",
		"endpoint drain app app-1 ":       "app-1 app-2 [::1]:80 =words",
		"endpoint drain --for 1s app ap":  "app-1 app-2 =words",
		"endpoint drain app --":           "--help --for =words",
		"hid":                             "=words",
		"split web ":                      "web-a: 1: =words",
		"split web a:5 ":                  "web-a: 2: =words",
		"deny ":                           "10.0.0.0/8 2001:db8::1 unix:uid=1000 =words",
		"deny unix:u":                     "unix:uid=1000 =words",
		"deny --state ":                   "open half-open =words",
		"deny --state=h":                  "--state=half-open =words",
		"deny --sort ":                    "age idle =words",
	} {
		if got := complete(t, line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestDescriptions: the beginning of the help text is beside a word, on one line.
func TestDescriptions(t *testing.T) {
	k, err := kong.New(new(commands), kong.Name("penstock"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	none := func(*completion.Line, string) []string { return nil }
	if err := completion.Parse(k.Model, []string{"status", "--"}).Complete(&out, none); err != nil {
		t.Fatal(err)
	}
	if want := "--config\tThe configuration\n--listener\tOnly this one\n--json\tIn JSON\n=words\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// FuzzParse: no line is too odd.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"", "status --", "- -- -o", "run -o", "--=", "endpoint drain - --x=", "help", "help help"} {
		f.Add(line)
	}
	k, err := kong.New(new(commands), kong.Name("penstock"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		var out strings.Builder
		if err := completion.Parse(k.Model, words).Complete(&out, func(*completion.Line, string) []string { return []string{"a"} }); err != nil {
			t.Fatal(err)
		}
		for word := range strings.Lines(out.String()) {
			word, _, _ = strings.Cut(strings.TrimSuffix(word, "\n"), "\t")
			if !strings.HasPrefix(word, "=") && !strings.HasPrefix(word, words[len(words)-1]) {
				t.Errorf("%q does not go on from %q", word, line)
			}
		}
	})
}

func TestScripts(t *testing.T) {
	for _, shell := range completion.Shells {
		if script, err := completion.Script(shell); err != nil || !strings.Contains(script, "__complete") {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if script, err := completion.Script("tcsh"); err == nil || script != "" {
		t.Errorf("tcsh: %v", fmt.Sprint(err))
	}
}
