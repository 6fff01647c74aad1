package builder_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/internal/fault"
)

// A list of checksums is read as PowerShell and Windows write it.
func TestFormsOfChecksums(t *testing.T) {
	sum, other := strings.Repeat("0a", 32), strings.Repeat("b1", 32)
	plain := sum + "  kubelet\n" + other + " *runc.amd64\n"
	table := "\n\nAlgorithm       Hash                                                                   Path\n---------       ----                                                                   ----\n" +
		"SHA256          " + strings.ToUpper(sum) + "       C:\\Down loads\\kubelet\nSHA256          " + strings.ToUpper(other) + "       C:\\dl\\runc.amd64\n\n"
	fields := "\n\nAlgorithm : SHA256\nHash      : " + strings.ToUpper(sum) + "\nPath      : C:\\dl\\kubelet\n\nAlgorithm : SHA256\nHash      : " + strings.ToUpper(other) + "\nPath      : /home/me/runc.amd64\n\n"
	csv := "\"Algorithm\",\"Hash\",\"Path\"\n\"SHA256\",\"" + strings.ToUpper(sum) + "\",\"C:\\dl\\kubelet\"\n\"SHA256\",\"" + strings.ToUpper(other) + "\",\"C:\\dl\\runc.amd64\"\n"
	read := func(content string) ([]builder.Pin, error) {
		path := filepath.Join(t.TempDir(), "SHA256SUMS")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return builder.ReadPins(path)
	}
	utf16 := func(order int, text string) string {
		b := []byte{0xff, 0xfe}
		if order == 1 {
			b = []byte{0xfe, 0xff}
		}
		for _, r := range []byte(text) {
			pair := [2]byte{}
			pair[order] = r
			b = append(b, pair[:]...)
		}
		return string(b)
	}
	for form, text := range map[string]string{"sha256sum": plain, "table": table, "list": fields, "CSV": csv} {
		for encoding, content := range map[string]string{
			"plain": text, "with a byte order mark": "\xef\xbb\xbf" + text, "UTF-16": utf16(0, text), "UTF-16, big-endian": utf16(1, text),
			"lines of Windows": strings.ReplaceAll(text, "\n", "\r\n"), "UTF-16, lines of Windows": utf16(0, strings.ReplaceAll(text, "\n", "\r\n")),
		} {
			pins, err := read(content)
			if err != nil || len(pins) != 2 || pins[0].Name != "kubelet" || pins[0].SHA256 != sum || pins[1].Name != "runc.amd64" || pins[1].SHA256 != other {
				t.Errorf("%s, %s: %+v, %v", form, encoding, pins, err)
			}
		}
	}
	for text, want := range map[string]string{
		"SHA256          " + sum + "       C:\\very\\lo...\n":   "is cut off",
		"SHA512          " + sum + sum + "       C:\\kubelet\n": "line 1: no sha256",
		"Algorithm : SHA1\nHash : " + sum[:40] + "\nPath : x\n": "line 1: no sha256",
		"Algorithm : SHA256\nHash      : " + sum + "\n":         "ends within",
		"Algorithm : SHA256\nPath      : kubelet\n":             "line 1: no sha256",
		"Hash      : " + sum + "\nPath      : kubelet\n":        "line 1: no sha256",
		"\x00" + plain:                      "line 1: no sha256",
		"Algorithm       Hash       Path\n": "has no checksums",
	} {
		if pins, err := read(text); err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%q: %v, %v", text, pins, err)
		}
	}
	if _, err := read(strings.Repeat("#", 17<<20)); err == nil {
		t.Error("a list of 17 MiB is read")
	}
}
