"""Write what is generated into the pages, and name those that changed."""

from tests.docs.pages import write

for path in write():
    print(path)
