package config

import (
	"fmt"
	"strings"
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
		if d := distance(fold, strings.ToLower(strings.ReplaceAll(word, "-", "_"))); d < least {
			best, least = word, d
		}
	}
	return best
}

// distance returns the number of characters to add, remove, change or swap with the next to
// turn a into b (optimal string alignment). Both are at most maxName long.
func distance(a, b string) int {
	var rows [3][maxName + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := range len(a) {
		before, last, row := &rows[(i+2)%3], &rows[i%3], &rows[(i+1)%3]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
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
