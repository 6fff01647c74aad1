package spec

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// registries reads the registries as the flags of init and join are read.
func (r *reader) registries(in *registries) *Registries {
	if in == nil {
		return nil
	}
	for _, p := range r.Problems {
		if strings.HasPrefix(p.Field, "registries.") {
			return nil
		}
	}
	to := &Registries{Flags: config.RegistryFlags{CAs: in.CA, Auth: in.Auth}}
	for _, host := range slices.Sorted(maps.Keys(in.Mirrors)) {
		for _, url := range in.Mirrors[host] {
			to.Flags.Mirrors = append(to.Flags.Mirrors, host+"="+url)
		}
	}
	var warnings []string
	var err error
	to.List, warnings, err = to.Flags.Read()
	if err != nil { // rules have checked the values alone
		at := "registries.ca"
		if strings.HasPrefix(err.Error(), "--registry-auth") {
			at = "registries.auth"
		}
		text := strings.NewReplacer("--registry-auth: ", "", "--registry-ca HOST=FILE: ", "", "--registry-ca: ", "").Replace(err.Error())
		hint := hintCA
		if at == "registries.auth" {
			hint = fault.Hint(err)
		}
		r.Add(r.Lines.Nearest("%s", at), hint, "%s: %s", at, text)
	}
	for _, w := range warnings {
		r.warn(r.Lines["registries"], "%s", w)
	}
	return to
}

// digestRounds makes a guess of a password as slow as OWASP asks for PBKDF2 with SHA-256.
const digestRounds = 600_000

// CredentialsDigest identifies the credentials for a saved plan, "" without any. Others may read a plan and passwords may be short, so each guess has to
// be slow.
func (r *Registries) CredentialsDigest(cluster string) (string, error) {
	if r == nil {
		return "", nil
	}
	salt := sha256.Sum256([]byte("plan of " + cluster))
	credentials := config.RecordRegistries(r.List, &config.RegistryRecord{Key: hex.EncodeToString(salt[:])}).Credentials
	if credentials == "" {
		return "", nil
	}
	key, err := pbkdf2.Key(sha256.New, credentials, salt[:], digestRounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("computing the digest of the credentials of registries: %w", err)
	}
	return hex.EncodeToString(key), nil
}

const hintCA = "write FILE, or HOST=FILE for one registry or mirror"

func registryHost(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if err := config.CheckRegistryHost(text); err != nil {
		return "", "cannot be used: " + err.Error(), ""
	}
	return text, "", ""
}

func mirrorURL(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if _, err := config.MirrorURL(text); err != nil {
		return "", "cannot be used: it " + err.Error(), "write a URL such as https://mirror.example:5000"
	}
	return text, "", ""
}

// registryCA is FILE or HOST=FILE.
func registryCA(r *reader, text string, _ strict.Place) (set, why, hint string) {
	host, file, named := config.CutRegistryCA(text)
	path, why, hint := r.path(file)
	if why != "" {
		return "", why, hint
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "cannot be read: " + err.Error(), hintCA + r.relative
	}
	r.addToDigest(text, data)
	if named {
		path = host + "=" + path
	}
	return path, "", ""
}

// registryAuth is a file with secrets, which is no part of the digest: the digest is in plans.
func registryAuth(r *reader, text string, _ strict.Place) (set, why, hint string) {
	path, why, hint := r.path(text)
	if why != "" {
		return "", why, hint
	}
	if _, err := os.Stat(path); err != nil {
		return "", "cannot be read: " + err.Error(), "write a file in the format of docker's config.json" + r.relative
	}
	return path, "", ""
}
