package manifests

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"airlift/images/release"
)

// confidence is how likely a value is an image, judged by its name.
type confidence int

const (
	anywhere confidence = iota // nothing
	hinted                     // the name contains "image"
	named                      // the name is "image", or ends with it
)

// noImages are names that contain "image" and have other values.
var noImages = regexp.MustCompile(`(?i)image[-_.]?(pull|registr|repo|tag|version|digest|gc|size|type|format|streams?|polic|secret|class|family|id$|os$|width|height)`)

// isImage are names whose values are images.
var isImage = regexp.MustCompile(`image([-_.]?(name|ref|reference|uri))?$`)

// confidenceOf judges the name of a field, flag, variable or section.
func confidenceOf(name string) confidence {
	lower := strings.ToLower(strings.TrimLeft(name, "-"))
	switch {
	case strings.HasSuffix(lower, "services"): // of CI jobs
		return hinted
	case noImages.MatchString(lower) || !strings.Contains(lower, "image") || strings.Contains(lower, "imagery"):
		return anywhere
	case isImage.MatchString(lower):
		return named
	}
	return hinted
}

var (
	versionTag = regexp.MustCompile(`^v?\d+(\.\d+)+|^v\d+|^latest$|^(stable|main|master|nightly|edge)$`)
	usualTag   = regexp.MustCompile(`[0-9]|^(latest|stable|main|master|nightly|edge)$`)
	port       = regexp.MustCompile(`^\d{4,5}$`)
	onlyDigits = regexp.MustCompile(`^\d+$`)
	hash       = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	fileName   = regexp.MustCompile(`(?i)\.(ya?ml|json|sh|conf|cfg|txt|crt|key|pem|sock|log|toml|ini|html?|js|css|png|svg|jpe?g|gif|ico|bmp|webp|iso|img|qcow2|raw|vmdk|bin|exe|jar|war|tar|tgz|gz|xz|bz2|zst|zip|xml|properties|csv|md|go|py|lua|tmpl|tpl|so)$`)
)

// registries are hosts that have images only. A name there is an image also without a tag.
var registries = regexp.MustCompile(`^((index\.|registry-1\.)?docker\.io|quay\.io|ghcr\.io|([a-z0-9-]+\.)?gcr\.io|registry\.k8s\.io|[a-z0-9-]+-docker\.pkg\.dev|public\.ecr\.aws|mcr\.microsoft\.com|[a-z0-9]+\.azurecr\.io|\d+\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com|nvcr\.io|icr\.io|lscr\.io|docker\.elastic\.co|registry\.[a-z0-9.-]+)$`)

// looksLikeImage returns the reference of s as containerd normalises it, if s looks like one.
func looksLikeImage(s string, c confidence) (string, bool) {
	if s == "" || c == anywhere && (!strings.Contains(s, "/") || !strings.ContainsAny(s, ".:")) && !isPinned(s) || len(s) > 500 || strings.ContainsAny(s, " \t\n{}$(),;=") || strings.Contains(s, "//") ||
		strings.ContainsRune("/.-:", rune(s[0])) {
		return "", false
	}
	parsed, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return "", false
	}
	ref, err := release.Normalize(s)
	if err != nil {
		return "", false
	}
	tag := ""
	if tagged, ok := parsed.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	first, rest, slash := strings.Cut(s, "/")
	host := slash && strings.ContainsAny(first, ".:") && !strings.HasSuffix(first, ".")
	repository := reference.Path(parsed)
	switch {
	case hash.MatchString(s):
		return ref, true
	case fileName.MatchString(repository) && tag == "":
		return "", false
	case host && tag != "" && rest != "":
		// host.example.com/path:8080 has a port in an unusual place, and
		// rbac.authorization.k8s.io/v1:Role no tag. nvidia.com/gpu:1 is a number of devices.
		return ref, c > anywhere || registries.MatchString(first) || !onlyDigits.MatchString(tag) && usualTag.MatchString(tag) ||
			onlyDigits.MatchString(tag) && len(tag) < 4 && (strings.Contains(first, ":") || strings.Contains(rest, "/")) && !fileName.MatchString(repository)
	case host && registries.MatchString(first) && tag == "":
		// quay.io/team without a name is a place for images.
		return ref, c > anywhere || strings.Count(s, "/") > 1
	case host:
		return ref, c == named && rest != ""
	case slash && tag != "":
		return ref, c > anywhere || versionTag.MatchString(tag)
	case slash:
		return ref, c == named
	case tag != "":
		return ref, c == named || c == hinted && (versionTag.MatchString(tag) ||
			usualTag.MatchString(tag) && !port.MatchString(tag) && !onlyDigits.MatchString(strings.TrimSuffix(s, ":"+tag)))
	default:
		return ref, c == named && !plainWord(s)
	}
}

// isPinned reports whether s is a name with a digest. A tag with a digest is not.
func isPinned(s string) bool {
	name, _, _ := strings.Cut(s, "@")
	return hash.MatchString(s) && !versionTag.MatchString(name) && !onlyDigits.MatchString(name)
}

// plainWord reports whether a value in a field named image is not an image: true, auto, none.
func plainWord(s string) bool {
	return slices.Contains([]string{"true", "false", "auto", "none", "default", "null", "yes", "no", "enabled", "disabled"}, s) || onlyDigits.MatchString(s)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func jsonText(v any) string {
	b, _ := json.Marshal(v) // numbers cannot fail
	return string(b)
}
