package secrets

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// noBreaks makes one word of a secret: some places have no way to quote.
func noBreaks(s string) string { return strings.NewReplacer(" ", "_", "\n", "_").Replace(s) }

// argument makes an argument of a secret: what begins with a dash is an option.
func argument(s string) string { return strings.TrimLeft(s, "-") }

// commandLines returns lines of logs with a command that has the secret in its arguments.
func (g Generator) commandLines() map[string]func(string) string {
	lines := map[string]func(string) string{}
	begin := pick(g, "", "running ", "exec: ", "+ ", "sh -c '", "Process: 12 ExecStartPre=/bin/sh -c ", "/usr/bin/", `failed to run command "`)
	variable := g.word(lower, 5)
	for _, command := range []string{
		"curl -u admin:§ https://h.example", "curl -uadmin:§ -s https://h.example", "curl -s --user admin:§ https://h.example", "curl -H 'X-Any: §' https://h.example", "wget --http-password § https://h.example",
		"docker login -u robot -p § r.example", "docker login -p§ r.example", "podman login -p § r.example", "helm registry login r.example -u x -p §",
		"mysql -p§", "mysql -h db -u root -p§ app", "mysqldump -p§ app", "psql -W § app", "mongosh -u root -p §",
		"ldapsearch -x -D cn=admin -w § -b dc=x", "ldapmodify -w§", "sshpass -p § ssh h", "sshpass -p§ ssh h", "redis-cli -a § ping", "redis-cli -h r -a § ping", "valkey-cli -a § ping",
		"openssl enc -k § -in x", "htpasswd -b x u §", "7z a -p§ x", "zip -P § x", "restic -p §", "snmpget -c § h",
		"docker run -e " + variable + "=§ x", "env -i " + variable + "=§ app", "export " + variable + "=§", "declare -x " + variable + "=§", "setenv " + variable + " §",
		"/opt/site/bin/app -p §", "/usr/local/bin/app --" + variable + "x §", "app -p § x", "app -w § x",
	} {
		lines["command, "+strings.ReplaceAll(command, variable, "VARIABLE")] = func(s string) string { return begin + strings.ReplaceAll(command, "§", argument(s)) }
	}
	return lines
}

// printedStructures returns lines of logs with a structure that some language printed.
func (g Generator) printedStructures(name string) map[string]func(string) string {
	inner := g.word(lower, 6)
	key := pick(g, "env", "environment", "headers", "header", "Env")
	record := func(field, value string) string {
		return `{"level":"info","ts":"2026-11-26T12:00:00Z","msg":"x",` + strconv.Quote(field) + `:` + value + `,"caller":"a.go:1"}`
	}
	return map[string]func(string) string{
		"record, list of variables": func(s string) string { return record(key, toJSON([]any{inner + "=" + s, "A=b"})) },
		"record, map":               func(s string) string { return record(key, toJSON(object{inner: s})) },
		"record, map of lists":      func(s string) string { return record(key, toJSON(object{inner: []any{s}})) },
		"record, deep":              func(s string) string { return record("request", toJSON(object{"a": object{key: object{inner: s}}})) },
		"record, objects":           func(s string) string { return record(key, toJSON([]any{object{"name": inner, "value": s}})) },
		"record, arguments":         func(s string) string { return record("args", toJSON([]any{"app", "-p", s})) },
		"record, flags":             func(s string) string { return record("args", toJSON([]any{"app", "--" + inner, s})) },
		"record, text in it":        func(s string) string { return record("body", toJSON(toJSON(object{key: object{inner: s}}))) },
		"record, message first": func(s string) string {
			return `{"msg":"x","` + key + `":` + toJSON(object{inner: s}) + `,"level":"info"}`
		},
		"Go's list":       func(s string) string { return "config {Name:a " + key + ":[" + inner + "=" + s + " A=b]}" },
		"Go's map of any": func(s string) string { return "config {" + key + ":map[" + inner + ":" + s + "] Mode:x}" },
		"Go's syntax": func(s string) string {
			return `config{` + key + `:map[string]string{` + fmt.Sprintf("%q:%q", inner, s) + `}}`
		},
		"Go's list syntax": func(s string) string {
			return `&exec.Cmd{Path:"/bin/app", ` + key + `:[]string{` + strconv.Quote(inner+"="+s) + `}}`
		},
		"Go's arguments":     func(s string) string { return "container {Args:[--v=2 --" + inner + " " + s + "]}" },
		"list after a name":  func(s string) string { return `"Running" ` + key + `=["` + inner + "=" + s + `"]` },
		"Python's dict":      func(s string) string { return "{'" + name + "': '" + s + "', 'mode': 'x'}" },
		"Python's dict in":   func(s string) string { return "{'mode': 'x', '" + key + "': {'" + inner + "': '" + s + "'}}" },
		"Python's tuple":     func(s string) string { return "('" + name + "', '" + s + "')" },
		"Java":               func(s string) string { return "Account{user='x', " + name + "='" + s + "'}" },
		"Java's record":      func(s string) string { return "Account[user=x, " + name + "=" + s + "]" },
		"Ruby":               func(s string) string { return `{:` + strings.ReplaceAll(name, "-", "_") + `=>"` + s + `", :mode=>"x"}` },
		"call":               func(s string) string { return `client.Set` + strings.ToUpper(name[:1]) + name[1:] + `("` + s + `")` },
		"XML's attribute":    func(s string) string { return `<user name="x" ` + name + `="` + s + `"/>` },
		"XML's parameter":    func(s string) string { return `<param name="` + name + `">` + s + `</param>` },
		"XML's next line":    func(s string) string { return "<" + name + ">\n  " + s + "\n</" + name + ">" },
		"YAML's flow":        func(s string) string { return "{ mode: x, " + name + ": " + s + " }" },
		"YAML's anchor":      func(s string) string { return name + ": &it " + s },
		"YAML's complex key": func(s string) string { return "? " + name + "\n: " + s },
		"environ":            func(s string) string { return "A=b\x00" + inner + "=" + s + "\x00C=d" },
		"cmdline":            func(s string) string { return "app\x00--" + inner + "\x00" + s + "\x00" },
	}
}

// configurationLines returns lines of configuration files, of protocols and of known kinds of keys.
func (g Generator) configurationLines(name, envName string) map[string]func(string) string {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) }
	user := g.word(lower, 5)
	prefix := pick(g, "pk_live_", "sk_live_", "rk_live_", "NRAK-", "ATATT", "ghp_", "github_pat_", "glpat-", "xoxb-", "xoxe-", "AKIA", "npm_", "hf_", "SG.", "dckr_pat_", "AGE-SECRET-KEY-", "eyJ", "glsa_", "GOCSPX-", "AIza", "hvs.", "pypi-")
	hash := pick(g, "$apr1$ab$", "$2y$10$", "$6$ab$", "{SHA}", "$argon2id$v=19$", "{SSHA512}")
	header := pick(g, "Authorization", "authorization", "AUTHORIZATION", "Proxy-Authorization", "X-Api-Key", "x-auth-token", "X-AUTH-TOKEN", "Cookie", "set-cookie", "X-Amz-Security-Token")
	lines := map[string]func(string) string{
		"known prefix":        func(s string) string { return "using " + prefix + oneWord(s) },
		"known prefix, quote": func(s string) string { return `x="` + prefix + oneWord(s) + `"` },
		"password's hash":     func(s string) string { return user + ":" + hash + noBreaks(s) },
		"pgpass":              func(s string) string { return "db.example:5432:app:" + user + ":" + s },
		"pgpass, any":         func(s string) string { return "*:*:*:" + user + ":" + s },
		"netrc":               func(s string) string { return "machine h.example login " + user + " password x" + noBreaks(s) },
		"Oracle":              func(s string) string { return "connecting to " + user + "/" + noBreaks(s) + "@db" },
		"Oracle, address":     func(s string) string { return "sqlplus " + user + "/" + noBreaks(s) + "@10.0.0.1:1521/orcl" },
		"JDBC, Oracle":        func(s string) string { return "jdbc:oracle:thin:" + user + "/" + noBreaks(s) + "@//h:1521/x" },
		"JDBC":                func(s string) string { return "jdbc:mysql://h/db?user=" + user + "&password=" + s },
		"ADO":                 func(s string) string { return "Server=h;User Id=sa;Password=" + s + ";Encrypt=true" },
		"ADO, pwd":            func(s string) string { return "Server=h;Uid=sa;Pwd=" + s + ";" },
		"storage account":     func(s string) string { return "AccountName=a;AccountKey=" + s + ";EndpointSuffix=x" },
		"redis options":       func(s string) string { return "h:6379,password=" + s + ",ssl=True" },
		"token at an address": func(s string) string { return "GET https://" + url.PathEscape(s) + "@10.0.0.1/x failed" },
		"SQL, identified":     func(s string) string { return "CREATE USER x IDENTIFIED BY '" + s + "'" },
		"SQL, plugin":         func(s string) string { return "ALTER USER x IDENTIFIED WITH mysql_native_password BY '" + s + "'" },
		"SQL, password":       func(s string) string { return "ALTER ROLE x PASSWORD '" + s + "'" },
		"SQL, function":       func(s string) string { return "SET PASSWORD FOR x = PASSWORD('" + s + "')" },
		"Redis":               func(s string) string { return `"AUTH" "default" "` + s + `"` },
		"Redis, file":         func(s string) string { return "requirepass x" + noBreaks(s) },
		"SMTP":                func(s string) string { return "AUTH PLAIN " + b64(s) },
		"FTP":                 func(s string) string { return "PASS x" + s },
		"header":              func(s string) string { return header + ": " + s },
		"header, JSON":        func(s string) string { return `{"` + header + `":["` + s + `"]` },
		"percent":             func(s string) string { return "next=https%3A%2F%2Fh%2F%3F" + name + "%3D" + url.QueryEscape(s) },
		"percent, user":       func(s string) string { return "next=https%3A%2F%2Fu%3A" + url.QueryEscape(s) + "%40h" },
		"percent, twice":      func(s string) string { return "next=" + url.QueryEscape(url.QueryEscape("x&"+name+"="+s)) },
		"pair in base64":      func(s string) string { return "credentials are " + b64(s) },
		"pair in base64, URL": func(s string) string {
			return "got " + strings.TrimRight(base64.URLEncoding.EncodeToString([]byte("user:"+oneWord(s))), "=")
		},
		"properties":      func(s string) string { return "db." + name + " = abc\\\n    " + s },
		"INI":             func(s string) string { return "[client]\n" + name + "=" + s },
		"HCL":             func(s string) string { return name + " = <<EOF\n" + s + "\nEOF" },
		"set -x":          func(s string) string { return "+ " + strings.ToLower(envName) + "=" + s },
		"systemd":         func(s string) string { return "Environment=" + strings.ToLower(envName) + "=" + s },
		"systemd, second": func(s string) string { return "Environment=\"GOGC=50\" \"" + strings.ToLower(envName) + "=" + s + `"` },
		"systemd, exec":   func(s string) string { return "ExecStart=/usr/bin/app " + argument(s) },
		"variable, value": func(s string) string { return strings.ToUpper(user) + "_PASSWORD x" + noBreaks(s) },
	}
	return lines
}

// cutLogs adds logs that begin in the middle of a record.
func (g Generator) cutLogs(add func(name, source string, oneLine bool, text func(s string) string)) {
	const journal = "journalctl --since=@1"
	prefix := func(process string) string { return "2026-11-26T12:00:00.000001+00:00 host1 " + process + ": " }
	record := "I1126 12:00:00.000000       1 server.go:1] \"next\"\n"
	kubelet := prefix("kubelet[123]")
	add("cut, tail of a block", journal, false, func(s string) string {
		return kubelet + "    " + strings.ReplaceAll(s, "\n", "\n"+kubelet+"    ") + "\n" + kubelet + record
	})
	add("cut, tail of a key", journal, false, func(s string) string {
		return kubelet + base64.StdEncoding.EncodeToString([]byte(s)) + "\n" + kubelet + "-----END PRIVATE KEY-----\n" + kubelet + record
	})
	add("cut, tail of a record", journal, true, func(s string) string { return noBreaks(s) + `","x":1}` + "\n" + kubelet + record })
	add("cut, another process first", journal, true, func(s string) string {
		return prefix("systemd[1]") + "a.service: Deactivated.\n" + prefix("containerd[7]") + record + kubelet + s + "\n" + kubelet + record
	})
	const out, err = "2026-11-26T12:00:00.5Z stdout ", "2026-11-26T12:00:00.5Z stderr "
	add("log, in parts", Log, true, func(s string) string {
		half := len(s) / 2
		return err + "P config pass" + "\n" + err + "P word: " + s[:half] + "\n" + out + "F " + record + err + "F " + s[half:] + "\n" + err + "F " + record
	})
	add("log, streams mixed", Log, true, func(s string) string {
		return err + "F password: |\n" + out + "F " + record + err + "F   " + s + "\n" + err + "F " + record
	})
}
