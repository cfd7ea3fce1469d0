package discovery_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/discovery"
)

// TestJSONEscapes: names as json.dumps and other programs write them are the same as
// elsewhere, in small files and in large ones.
func TestJSONEscapes(t *testing.T) {
	for written, want := range map[string]string{
		`\ud83d\ude00`: "\U0001F600", `\uD83D\uDE00`: "\U0001F600", `a\ud83d\ude00b\ud83d\ude01`: "a\U0001F600b\U0001F601",
		`\udbff\udffd`: "", // it is not visible
		`\u00e9`:       "\u00e9", `\u20ac`: "\u20ac", `\/`: "/", `\\ud83d`: `\ud83d`, `\\\ud83d\ude00`: "\\\U0001F600", `\"`: `"`, "\U0001F600": "\U0001F600",
		`\ud83d`: "", `\ude00`: "", `\ude00\ud83d`: "", `\ud83dx\ude00`: "", `\\ud83d\ude00`: "",
	} {
		if name := ""; json.Unmarshal([]byte(`"`+written+`"`), &name) != nil || want != "" && name != want {
			t.Fatalf("%s is %q", written, name)
		}
		for _, space := range []string{"", strings.Repeat(" \n", 3000)} {
			text := fmt.Sprintf("[%s{\"address\": \"a:1\", \"name\": \"%s\"}]", space, written)
			found, err := discovery.Parse("eps", []byte(text))
			switch {
			case want == "" && err == nil:
				t.Errorf("%s: taken as %+v", written, found)
			case want != "" && (err != nil || found[0].Name != want):
				t.Errorf("%s: %v, %v", written, found, err)
			}
		}
	}
}

// TestPlacesAfterPairs: an error behind a pair is reported at its position in the file.
func TestPlacesAfterPairs(t *testing.T) {
	const list = `[{"name": "\ud83d\ude00", "weight": 999, "address": "a:1"},
 {"weight": 999, "address": "a:1", "name": "\ud83d\ude00\ud83d\ude00", "zone": 7}]`
	const want = ":LINE:37: write a whole number;:NEXT:13: write a whole number;:NEXT:80: write text"
	for _, lines := range []int{0, 3000} {
		_, err := discovery.Parse("eps", []byte(strings.Repeat(" \n", lines)+list))
		text := fmt.Sprint(err)
		for _, part := range strings.Split(want, ";") {
			part = strings.NewReplacer("LINE", fmt.Sprint(lines+1), "NEXT", fmt.Sprint(lines+2)).Replace(part)
			if !strings.Contains(text, part) {
				t.Errorf("%s\nwant %s", text, part)
			}
		}
	}
}
