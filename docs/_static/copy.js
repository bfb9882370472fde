// A button on each block of code that copies it: of a shell's or Python's session the commands
// alone, without prompts and output.
document.addEventListener("DOMContentLoaded", () => {
    const commands = (text) => {
        const lines = text.split("\n"), taken = [];
        for (let i = 0; i < lines.length; i++) {
            if (!lines[i].startsWith("$ ")) continue;
            taken.push(lines[i].slice(2));
            while (lines[i].endsWith("\\") && i + 1 < lines.length) taken.push(lines[++i]);
            if (!lines[i].endsWith("<<'END'")) continue;
            do taken.push(lines[++i]); while (lines[i] !== "END" && i + 1 < lines.length);
        }
        return taken.join("\n");
    };
    const statements = (text) =>
        text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line))
            .map((line) => line.slice(4)).join("\n");

    const write = async (text) => {
        if (navigator.clipboard) return navigator.clipboard.writeText(text);
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
    };

    for (const block of document.querySelectorAll("div[class*='highlight-'] > .highlight")) {
        const kind = block.parentElement.className;
        if (kind.includes("highlight-text")) continue;
        const code = block.querySelector("pre").textContent;
        const text = kind.includes("highlight-console") ? commands(code)
            : code.startsWith(">>> ") ? statements(code) : code;
        const button = document.createElement("button");
        button.className = "copy";
        button.type = "button";
        button.textContent = "Copy";
        button.addEventListener("click", async () => {
            await write(text);
            button.textContent = "Copied";
            setTimeout(() => { button.textContent = "Copy"; }, 1500);
        });
        block.append(button);
    }
});
