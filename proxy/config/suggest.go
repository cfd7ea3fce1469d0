package config

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/internal/nearest"
)

// closest returns the word that text most likely stands for, or "" if there is none.
func closest(text string, words []string) string {
	best, least := "", min(max(len(text)/3, 1)+1, len(text))
	if len(text) > maxName {
		return ""
	}
	fold := strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(text))
	for _, word := range words {
		if len(word) > maxName || word == "" {
			continue
		}
		if abs(len(word)-len(fold)) >= least {
			continue
		}
		if d := nearest.Distance(fold, strings.ToLower(strings.ReplaceAll(word, "-", "_"))); d < least {
			best, least = word, d
		}
	}
	return best
}

func didYouMean(word string) string { return fmt.Sprintf("did you mean %q?", word) }

// enumeration joins words: a, b or c. Long lists are cut short.
func enumeration(words []string, last string) string {
	const most = 12
	if len(words) > most {
		return strings.Join(words[:most], ", ") + ", …"
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

func abs(n int) int { return max(n, -n) }
