package secrets

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// windows are the pieces of a secret that must not be left: its words, and all pieces of 6 letters.
func windows(s string) (list []string) {
	runes := []rune(s)
	if len(runes) < 6 {
		return []string{s}
	}
	for i := range len(runes) - 5 {
		if piece := string(runes[i : i+6]); strings.TrimSpace(piece) == piece && !strings.Contains(piece, "\n") {
			list = append(list, piece)
		}
	}
	return list
}

// spellings returns a text as it is, and as readers of it would decode it.
func spellings(text string) string {
	unfolded := strings.Join(strings.Fields(text), " ")
	decoded, _ := url.QueryUnescape(text)
	all := text + "\n" + unfolded + "\n" + decoded + "\n" + strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n", `\/`, "/", `\u003c`, "<", `\u0026`, "&").Replace(text)
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !strings.ContainsRune(alnum+"+/=", r) }) {
		for _, candidate := range []string{word, strings.Trim(word, "=")} {
			if data, err := base64.StdEncoding.DecodeString(candidate); err == nil && len(data) > 5 {
				all += "\n" + string(data)
			}
			if data, err := base64.RawStdEncoding.DecodeString(candidate); err == nil && len(data) > 5 {
				all += "\n" + string(data)
			}
		}
	}
	return all
}

// Leak returns a piece of the secret that a text has, and the same text with another secret has
// not; or "".
func Leak(text, other, secret string) string {
	text, other = spellings(text), spellings(other)
	for _, piece := range windows(secret) {
		if strings.Contains(text, piece) && !strings.Contains(other, piece) {
			return piece
		}
	}
	return ""
}
