package redact

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// clients are commands to which people pass passwords.
var clients = set(`curl wget xh http https docker podman nerdctl buildah skopeo oras helm crane regctl mysql mysqladmin mysqldump mysqlimport mysqlsh mariadb mariadb-admin mariadb-dump psql pg_dump pg_restore pg_basebackup
	ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami sshpass redis-cli valkey-cli mongo mongosh mongodump mongorestore mongoexport mongoimport cqlsh influx sqlplus sqlcmd bcp isql clickhouse-client
	rabbitmqadmin rabbitmqctl nats mosquitto_pub mosquitto_sub smbclient rpcclient htpasswd keytool openssl kinit kadmin vault consul aws az gcloud rclone restic borg s3cmd ipmitool snmpget snmpwalk snmpset
	wpa_cli wpa_passphrase iscsiadm useradd usermod chpasswd svn git zip unzip 7z 7za cryptsetup xfreerdp plink lftp ftp swaks msmtp net terraform tofu ssh-keygen ansible ansible-playbook gpg grpcurl age sops argocd`)

// harmlessPrograms have options that nobody uses for secrets.
var harmlessPrograms = set(`iptables ip6tables iptables-save ip6tables-save iptables-restore ip6tables-restore xtables-nft-multi xtables-legacy-multi nft ip ipset conntrack tc modprobe mount umount systemd-run systemctl journalctl
	kubectl tar ls cat tail grep df du ps ss runc pause`)

// variableWords begin a row of variables.
var variableWords = set("export declare readonly typeset env -e --env + ++ +++ ++++")

var unitCommand = regexp.MustCompile(`^(?:Exec[A-Z][A-Za-z]*|COMMAND)=`)

// commandWords limits how many words of a command are read.
const commandWords = 64

// A span is a word in a text, and where it begins.
type span struct {
	at   int
	text string
}

// spans returns the words of a text without quotes, commas and brackets.
func spans(text string) (list []span) {
	start := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && !strings.ContainsRune(" \t\r\n\x00\"'\\,;|`[]()", rune(text[i])) {
			continue
		}
		if i > start {
			list = append(list, span{start, text[start:i]})
		}
		start = i + 1
	}
	return list
}

// commandSecret looks in a text for the first word of a command line, or the value of a variable,
// that is not known to be harmless. It returns where this begins, or -1.
func commandSecret(text string) int {
	words := spans(text)
	for i := 0; i < len(words); i++ {
		word := words[i].text
		rest := words[i+1 : min(i+1+commandWords, len(words))]
		at := -1
		switch isUnit := unitCommand.MatchString(word); {
		case strings.HasPrefix(word, "Environment="):
			const name = len("Environment=")
			at = variableSecret(text, append([]span{{words[i].at + name, word[name:]}}, rest...))
		case variableWords[path.Base(word)]:
			at = variableSecret(text, rest)
		case isUnit, isCommand(word):
			if at = argumentSecret(rest, isUnit); at < 0 {
				i += len(rest) // all of them were read
			}
		}
		if at >= 0 {
			return at
		}
	}
	return -1
}

// isCommand reports whether a word is a client or the path of a binary.
func isCommand(word string) bool {
	name := path.Base(word)
	return clients[name] || strings.HasPrefix(word, "/") && strings.Contains(word, "bin/") && !harmlessPrograms[name]
}

// variableSecret returns the start of a variable's value that is not known to be harmless, or -1.
func variableSecret(text string, words []span) int {
	for _, w := range words {
		name, _, ok := strings.Cut(w.text, "=")
		value := w.at + len(name) + 1
		switch {
		case strings.HasPrefix(name, "-") || w.text == "":
			continue
		case !ok:
			return -1
		case !harmlessVariables[name] && !argumentVariables[name] && !proxyVariables[name] && strings.TrimSpace(text[min(value, len(text)):min(value+1, len(text))]) != "":
			return value
		}
	}
	return -1
}

// argumentSecret returns the start of an argument that is not known to be harmless, or -1. Before
// the first option of a command, except of a unit's, the words may belong to a sentence.
func argumentSecret(words []span, isUnit bool) int {
	if !isUnit {
		first := slices.IndexFunc(words, func(w span) bool { return option.MatchString(w.text) })
		if first < 0 {
			return -1
		}
		words = words[first:]
	}
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = w.text
	}
	for i, kept := range Arguments(list, false) {
		if kept != list[i] && !plainWord.MatchString(list[i]) {
			return words[i].at
		}
	}
	return -1
}

var (
	option    = regexp.MustCompile(`^--?[A-Za-z]`)
	plainWord = regexp.MustCompile(hostPath.String() + `|^https?://[\w.:/-]*$|^redacted$`)
)
