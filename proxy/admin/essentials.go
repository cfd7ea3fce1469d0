package admin

import (
	"encoding/json"
	"path"
)

// essentials are members without which an answer would say something else, by the path of the request. Members that
// came later are none: a process of an older version answers without them.
var essentials = map[string][]string{
	"/v1/status":        {"state", "pid"},
	"/v1/generations":   {"current"},
	"/v1/plan":          {"generation", "changes"},
	"/v1/reload":        {"generation"},
	"/v1/confirm":       {"generation"},
	"/v1/rollback":      {"generation"},
	"/v1/sessions":      {"sessions"},
	"/v1/sessions/end":  {"touched", "done"},
	"/v1/sessions/keep": {"requests"},
	"/v1/sources":       {"sources"},
	"/v1/denied":        {"denied"},
	"/v1/deny/add":      {"source", "until"},
	"/v1/why":           {"count"},
	"/v1/endpoint":      {"endpoint"}, // and each path below it
}

// missing returns the first member that the answer to a request needs and lacks, or has as null; "": it is whole.
func missing(of string, body []byte) string {
	names := essentials[of]
	if names == nil {
		names = essentials[path.Dir(of)]
	}
	members := make(map[string]json.RawMessage)
	if len(names) > 0 && json.Unmarshal(body, &members) != nil {
		return names[0]
	}
	for _, name := range names {
		if v := members[name]; len(v) == 0 || string(v) == "null" && name != "changes" {
			return name
		}
	}
	return ""
}
