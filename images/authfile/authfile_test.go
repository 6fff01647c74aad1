package authfile_test

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/docker/cli/cli/config"

	"airlift/images/authfile"
)

const good = `{"auths": {"registry.example": {"auth": "dXNlcjpodW50ZXIy"}}, "credsStore": "pass", "credHelpers": {"quay.io": "x"}, "HttpHeaders": {"a": "b"}}`

func utf16Of(order binary.AppendByteOrder, text string) string {
	var content []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		content = order.AppendUint16(content, unit)
	}
	return string(content)
}

// docker's own reader gets the same from each encoding.
func TestEncodings(t *testing.T) {
	for name, content := range map[string]string{
		"UTF-8": good, "byte order mark": "\ufeff" + good, "UTF-16, little": utf16Of(binary.LittleEndian, good), "UTF-16, big": utf16Of(binary.BigEndian, good),
		"carriage returns": strings.ReplaceAll(good, " ", "\r\n") + "\r\n",
	} {
		text, err := authfile.Check([]byte(content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := config.LoadFromReader(strings.NewReader(string(text)))
		if err != nil || c.AuthConfigs["registry.example"].Password != "hunter2" || c.CredentialsStore != "pass" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if text, err := authfile.Check([]byte(" \n")); err != nil || string(text) != "{}" {
		t.Errorf("empty: %q, %v", text, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	for content, want := range map[string]string{
		good + "\n}":           "line 2: more follows",
		good + good:            "line 1: more follows",
		good + "\nmore":        "line 2: more follows",
		"{\n\"auths\": {},\n}": "line 3: it is not JSON",
		"user:hunter2":         "line 1: it is not JSON",
		`{"auths": {`:          "it ends before",
		"[]":                   "not a JSON object",
		"null":                 "not a JSON object",
		`"hunter2"`:            "not a JSON object",
		"{\"auths\": {\"r\": {\"auth\": \"a\"},\n\"r\": {\"auth\": \"hunter2\"}}}": "line 2: auths.r is written twice, first at line 1",
		`{"auths": []}`:                                                    "auths must be an object",
		`{"auths": "hunter2"}`:                                             "auths must be an object",
		`{"auths": {"r": "user:hunter2"}}`:                                 `auths["r"] must be an object`,
		`{"auths": {"r": {"auth": ["hunter2"]}}}`:                          `auths["r"].auth must be a string`,
		`{"auths": {"r": {"username": "u", "password": 12345}}}`:           `auths["r"].password must be a string`,
		`{"credHelpers": ["x"]}`:                                           "credHelpers must be an object",
		`{"credsStore": true}`:                                             "credsStore must be a string",
		`{"registry.example": {"auth": "hunter2"}}`:                        ".dockercfg",
		`{"apiVersion": "v1", "kind": "Secret", "data": {"x": "hunter2"}}`: "kubectl get secret",
		base64.StdEncoding.EncodeToString([]byte(good)):                    "base64 -d",
		"apiVersion: v1\nkind: Secret\n":                                   "line 1: it is not JSON",
	} {
		_, err := authfile.Check([]byte(content))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}
