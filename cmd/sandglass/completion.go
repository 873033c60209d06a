package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
)

// completionCmd prints a shell's completion script, which is made from the commands and flags themselves.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Prints a script that completes commands, flags and the names of providers. Load it where your shell starts:

	bash  source <(sandglass completion bash)
	zsh   source <(sandglass completion zsh), after compinit
	fish  sandglass completion fish | source

Examples:

	sandglass completion bash
	sandglass completion zsh
	sandglass completion fish`
}

// A word is something to complete, with what it means.
type word struct{ text, help string }

// Run is the command.
func (c *completionCmd) Run(w *world) error {
	var names []string
	var subcommands []word
	flags := map[string][]word{}
	for _, node := range w.parser.Model.Leaves(true) {
		names = append(names, node.Name)
		subcommands = append(subcommands, word{node.Name, node.Help})
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				flags[node.Name] = append(flags[node.Name], word{"--" + f.Name, firstSentence(f)})
			}
		}
	}
	slices.Sort(names)
	providers := append(settings.Kinds(), w.settings.AccountNames()...)
	var script string
	switch c.Shell {
	case "bash":
		script = bash(names, flags, providers)
	case "zsh":
		script = "autoload -U +X bashcompinit && bashcompinit\n" + bash(names, flags, providers)
	case "fish":
		script = fish(subcommands, flags, providers)
	}
	_, err := io.WriteString(w.out, script)
	return err
}

func firstSentence(f *kong.Flag) string {
	text, _, _ := strings.Cut(f.Help, ". ")
	text, _, _ = strings.Cut(text, ": ")
	return strings.TrimSuffix(text, ".")
}

// bash serves zsh too, by its own compatibility with bash's completion.
func bash(names []string, flags map[string][]word, providers []string) string {
	var b strings.Builder
	b.WriteString(`_sandglass() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} words i
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = -- ]; then
			COMPREPLY=($(compgen -f -- "$cur"))
			return
		fi
	done
	case $prev in
		--provider | -p) COMPREPLY=($(compgen -W ` + quote(strings.Join(providers, " ")) + ` -- "$cur")); return ;;
		--journal) COMPREPLY=($(compgen -d -- "$cur")); return ;;
		--config | --history) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	esac
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W ` + quote(strings.Join(names, " ")) + ` -- "$cur"))
		return
	fi
	case $cmd in
`)
	for _, name := range names {
		var words []string
		for _, f := range flags[name] {
			words = append(words, f.text)
		}
		if name == "completion" {
			words = append(words, "bash", "zsh", "fish")
		}
		fmt.Fprintf(&b, "\t\t%s) words=%s ;;\n", name, quote(strings.Join(words, " ")))
	}
	b.WriteString(`	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _sandglass sandglass
`)
	return b.String()
}

func fish(names []word, flags map[string][]word, providers []string) string {
	var b strings.Builder
	b.WriteString("complete -c sandglass -f\n")
	for _, n := range names {
		fmt.Fprintf(&b, "complete -c sandglass -n __fish_use_subcommand -a %s -d %s\n", n.text, quote(n.help))
		for _, f := range flags[n.text] {
			long := strings.TrimPrefix(f.text, "--")
			fmt.Fprintf(&b, "complete -c sandglass -n '__fish_seen_subcommand_from %s' -l %s -d %s", n.text, long, quote(f.help))
			switch long {
			case "provider":
				fmt.Fprintf(&b, " -x -a %s", quote(strings.Join(providers, " ")))
			case "journal", "config", "history":
				b.WriteString(" -r -F")
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("complete -c sandglass -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	return b.String()
}

// quote is for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
